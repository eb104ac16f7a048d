"""Latency profiles: how long connecting, statements and COMMITs take, and how far away the client is.

Here live the distributions, the profiles (data files with dates and sources) and the hook that tells how long an answer
is held back. Nothing here waits: the gateway does, in its own loop.
"""
