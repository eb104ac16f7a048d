"""Object-relational mappers and drivers against the engine, used as their users use them."""
