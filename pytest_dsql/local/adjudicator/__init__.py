"""The adjudicator: who may commit. It makes optimistic concurrency, as DSQL has it, out of PostgreSQL's locks."""
