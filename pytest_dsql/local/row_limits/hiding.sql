-- DSQL has no triggers, so clients see none of those that count: PostgreSQL itself knows its catalogs by their numbers,
-- and a view takes each one's name, which shows everything to the engine itself.
SET LOCAL allow_system_table_mods = on;

ALTER TABLE pg_catalog.pg_trigger RENAME TO pytest_dsql_engine_trigger;
CREATE VIEW pg_catalog.pg_trigger AS
  SELECT * FROM pg_catalog.pytest_dsql_engine_trigger
  WHERE tgname NOT LIKE 'pytest\_dsql\_engine%' AND tgname NOT LIKE 'dsql\_limits\_%'
    OR (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = CURRENT_USER);
GRANT SELECT ON pg_catalog.pg_trigger TO PUBLIC;

ALTER TABLE pg_catalog.pg_event_trigger RENAME TO pytest_dsql_engine_event_trigger;
CREATE VIEW pg_catalog.pg_event_trigger AS
  SELECT * FROM pg_catalog.pytest_dsql_engine_event_trigger
  WHERE evtname NOT LIKE 'pytest\_dsql\_engine%'
    OR (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = CURRENT_USER);
GRANT SELECT ON pg_catalog.pg_event_trigger TO PUBLIC;

SET LOCAL allow_system_table_mods = off;
