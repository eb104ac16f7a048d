"""Snapshot isolation with first-committer-wins in plain Python, written from DSQL's documentation, not from the engine.

Nothing here knows the engine: `statements` says what can be asked, `execution` what a transaction sees, `conflicts` who
loses, `sessions` what a client is answered.
"""
