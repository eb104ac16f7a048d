"""What a person reads: the terminal."""
