"""A small Django application, for its migrations and models."""
