"""The shop's schema, step by step."""
