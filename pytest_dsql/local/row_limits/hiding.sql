-- DSQL has no triggers (AWS user guide, "Systems tables and commands"), so clients see none: neither those that count, nor
-- those by which PostgreSQL keeps foreign keys. PostgreSQL itself knows its catalogs by their numbers, and a view takes each
-- one's name, which shows everything to the engine itself. It has the system column that psql's \dd asks for.
SET LOCAL allow_system_table_mods = on;

ALTER TABLE pg_catalog.pg_trigger RENAME TO pytest_dsql_engine_trigger;
CREATE VIEW pg_catalog.pg_trigger AS
  SELECT *, 2620::oid AS tableoid FROM pg_catalog.pytest_dsql_engine_trigger
  WHERE (SELECT rolsuper FROM pg_catalog.pg_authid WHERE rolname = CURRENT_USER);
GRANT SELECT ON pg_catalog.pg_trigger TO PUBLIC;

ALTER TABLE pg_catalog.pg_event_trigger RENAME TO pytest_dsql_engine_event_trigger;
CREATE VIEW pg_catalog.pg_event_trigger AS
  SELECT *, 3466::oid AS tableoid FROM pg_catalog.pytest_dsql_engine_event_trigger
  WHERE (SELECT rolsuper FROM pg_catalog.pg_authid WHERE rolname = CURRENT_USER);
GRANT SELECT ON pg_catalog.pg_event_trigger TO PUBLIC;

SET LOCAL allow_system_table_mods = off;
