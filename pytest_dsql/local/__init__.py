"""The embedded engine: real PostgreSQL behind a gateway that speaks and enforces what DSQL does. Stands alone."""
