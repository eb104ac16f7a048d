"""What Aurora DSQL answers, as cases in data files, and what runs them: see docs/conformance.md for their format."""
