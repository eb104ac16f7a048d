"""The load generator: the libpq event loop, its workers and what they measured."""
