"""Endpoints, tokens, the dialer and pools: how a connection to any target comes to exist."""
