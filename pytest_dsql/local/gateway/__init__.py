"""The wire protocol between clients and PostgreSQL: TLS, tokens, frames."""
