"""The wire protocol between clients and PostgreSQL: TLS, tokens, frames.

What a statement means is decided in `dialect`; how PostgreSQL lives is decided in `postgres`. Nothing here keeps
a token longer than its verification takes.
"""
