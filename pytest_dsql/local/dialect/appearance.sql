-- What clients see of the catalog where PostgreSQL's own would tell of itself instead of DSQL.
--
-- PostgreSQL itself knows its catalogs by their numbers, so a view can take a catalog's name. Superusers, the engine's
-- own functions among them, see through these views.
SET LOCAL allow_system_table_mods = on;

-- Access methods are called otherwise, and the index of a primary key includes all other columns: tables are stored by
-- their keys (AWS user guide, "Primary keys in Aurora DSQL").

ALTER TABLE pg_catalog.pg_am RENAME TO pytest_dsql_engine_am;
CREATE VIEW pg_catalog.pg_am AS
  SELECT oid, CASE amname WHEN 'btree' THEN 'btree_index'::name ELSE amname END AS amname, amhandler, amtype
  FROM pg_catalog.pytest_dsql_engine_am;
GRANT SELECT ON pg_catalog.pg_am TO PUBLIC;

ALTER TABLE pg_catalog.pg_index RENAME TO pytest_dsql_engine_index;

-- The columns that a primary key's index includes, as DSQL has it; PostgreSQL's own has none of them.
CREATE FUNCTION pytest_dsql_engine.included_columns(index oid) RETURNS smallint[] LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT COALESCE(pg_catalog.array_agg(a.attnum ORDER BY a.attnum), '{}')
  FROM pg_catalog.pytest_dsql_engine_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid
  WHERE i.indexrelid = index AND i.indisprimary AND i.indrelid >= 16384
    AND a.attnum > 0 AND NOT a.attisdropped AND a.attnum <> ALL (i.indkey::smallint[])
$$;

CREATE VIEW pg_catalog.pg_index AS
  SELECT indexrelid, indrelid,
    CASE WHEN shown.whole THEN (indnatts + pg_catalog.cardinality(pytest_dsql_engine.included_columns(indexrelid)))::smallint
      ELSE indnatts END AS indnatts,
    indnkeyatts, indisunique, indnullsnotdistinct, indisprimary, indisexclusion, indimmediate, indisclustered, indisvalid,
    indcheckxmin, indisready, indislive, indisreplident,
    CASE WHEN shown.whole
      THEN pg_catalog.array_to_string(indkey::smallint[] || pytest_dsql_engine.included_columns(indexrelid), ' ')::int2vector
      ELSE indkey END AS indkey,
    indcollation, indclass, indoption, indexprs, indpred
  FROM pg_catalog.pytest_dsql_engine_index,
    LATERAL (SELECT indisprimary AND NOT (SELECT rolsuper FROM pg_catalog.pg_authid WHERE rolname = CURRENT_USER)) AS shown(whole);
GRANT SELECT ON pg_catalog.pg_index TO PUBLIC;

ALTER FUNCTION pg_catalog.pg_get_indexdef(oid) RENAME TO pytest_dsql_engine_get_indexdef;
ALTER FUNCTION pg_catalog.pg_get_indexdef(oid, integer, boolean) RENAME TO pytest_dsql_engine_get_indexdef;

-- A definition of a primary key, or of its index, with the columns that it includes.
CREATE FUNCTION pytest_dsql_engine.with_included(index oid, definition text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT COALESCE((
    SELECT CASE WHEN i.indnatts > i.indnkeyatts THEN pg_catalog.left(definition, -1) || ', ' ELSE definition || ' INCLUDE (' END
      || pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) || ')'
    FROM pg_catalog.pytest_dsql_engine_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid
    WHERE i.indexrelid = index AND a.attnum = ANY (pytest_dsql_engine.included_columns(index))
    GROUP BY i.indnatts, i.indnkeyatts
  ), definition)
$$;

-- `CREATE INDEX name ON schema.table USING btree (...)`; what is quoted may hold anything.
CREATE FUNCTION pytest_dsql_engine.shown_index(index oid, definition text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT pytest_dsql_engine.with_included(index, pg_catalog.regexp_replace(definition,
    '^(CREATE (?:UNIQUE )?INDEX (?:"(?:[^"]|"")*"|[^" ])+ ON (?:ONLY )?(?:"(?:[^"]|"")*"|[^" ])+ USING )btree ', '\1btree_index '))
$$;

CREATE FUNCTION pg_catalog.pg_get_indexdef(oid) RETURNS text LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
  SELECT pytest_dsql_engine.shown_index($1, pg_catalog.pytest_dsql_engine_get_indexdef($1))
$$;

CREATE FUNCTION pg_catalog.pg_get_indexdef(oid, integer, boolean) RETURNS text LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
  SELECT CASE WHEN $2 = 0 THEN pytest_dsql_engine.shown_index($1, pg_catalog.pytest_dsql_engine_get_indexdef($1, 0, $3))
    ELSE COALESCE(
      (SELECT pg_catalog.quote_ident(a.attname)
        FROM pg_catalog.pytest_dsql_engine_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid
        WHERE i.indexrelid = $1 AND $2 > i.indnatts
          AND a.attnum = (pytest_dsql_engine.included_columns($1))[$2 - i.indnatts]),
      pg_catalog.pytest_dsql_engine_get_indexdef($1, $2, $3))
    END
$$;

-- So does the definition of a primary key, while a unique constraint's has nothing to add (both seen on a cluster in October
-- 2026).
ALTER FUNCTION pg_catalog.pg_get_constraintdef(oid) RENAME TO pytest_dsql_engine_get_constraintdef;
ALTER FUNCTION pg_catalog.pg_get_constraintdef(oid, boolean) RENAME TO pytest_dsql_engine_get_constraintdef;

CREATE FUNCTION pytest_dsql_engine.shown_constraint(con oid, definition text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT COALESCE((
    SELECT pytest_dsql_engine.with_included(conindid, definition) FROM pg_catalog.pg_constraint
    WHERE oid = con AND contype = 'p' AND NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = CURRENT_USER)
  ), definition)
$$;

CREATE FUNCTION pg_catalog.pg_get_constraintdef(oid) RETURNS text LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
  SELECT pytest_dsql_engine.shown_constraint($1, pg_catalog.pytest_dsql_engine_get_constraintdef($1))
$$;

CREATE FUNCTION pg_catalog.pg_get_constraintdef(oid, boolean) RETURNS text LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
  SELECT pytest_dsql_engine.shown_constraint($1, pg_catalog.pytest_dsql_engine_get_constraintdef($1, $2))
$$;

-- Roles that are the engine's are nobody else's business.

CREATE OR REPLACE VIEW pg_catalog.pg_roles AS
  SELECT rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolconnlimit,
    '********'::text AS rolpassword, rolvaliduntil, rolbypassrls, setconfig AS rolconfig, pg_authid.oid
  FROM pg_catalog.pg_authid LEFT JOIN pg_catalog.pg_db_role_setting s ON pg_authid.oid = setrole AND setdatabase = 0
  WHERE NOT rolsuper OR (SELECT rolsuper FROM pg_catalog.pg_authid WHERE rolname = CURRENT_USER);

CREATE OR REPLACE VIEW pg_catalog.pg_shadow AS
  SELECT rolname AS usename, pg_authid.oid AS usesysid, rolcreatedb AS usecreatedb, rolsuper AS usesuper,
    rolreplication AS userepl, rolbypassrls AS usebypassrls, rolpassword AS passwd, rolvaliduntil AS valuntil,
    setconfig AS useconfig
  FROM pg_catalog.pg_authid LEFT JOIN pg_catalog.pg_db_role_setting s ON pg_authid.oid = setrole AND setdatabase = 0
  WHERE rolcanlogin
    AND (NOT rolsuper OR (SELECT rolsuper FROM pg_catalog.pg_authid WHERE rolname = CURRENT_USER));

-- The values of DSQL's settings, as `current_setting` shows them, and the settings that PostgreSQL lacks.

CREATE OR REPLACE VIEW pg_catalog.pg_settings AS
  SELECT name, COALESCE(ours, setting) AS setting, unit, category, short_desc, extra_desc, context, vartype, source, min_val,
    max_val, enumvals, boot_val, COALESCE(ours, reset_val) AS reset_val, sourcefile, sourceline, pending_restart
  FROM pg_catalog.pg_show_all_settings(),
    LATERAL (SELECT CASE
      WHEN name IN ('server_version', 'server_version_num', 'default_toast_compression', 'max_connections', 'lock_timeout')
      THEN pg_catalog.current_setting(name)
      WHEN name = 'work_mem' THEN '131072' END) AS on_dsql(ours)
  WHERE name !~ '^pytest_dsql_engine'
  UNION ALL
  SELECT name, pg_catalog.current_setting(name), NULL, 'Customized Options', short_desc, NULL, 'user', 'bool', 'default', NULL,
    NULL, NULL, 'on', 'on', NULL, NULL, false
  FROM (VALUES
    ('disable_sync_create_index', 'Refuses CREATE INDEX without ASYNC, also on empty tables.'),
    ('dsql.enable_batched_nestloop', 'Enables the planner''s use of batched nested-loop join plans.')
  ) AS added(name, short_desc);

-- Statistics and sessions of the server: DSQL has none (AWS user guide, "Systems tables and commands"), and they would tell
-- of the engine's own. pg_stat_ssl is the one that it has. Nor has it extensions to offer (seen in October 2026).
DO $$
DECLARE
  found record;
BEGIN
  FOR found IN
    SELECT c.relname, pg_catalog.pg_get_viewdef(c.oid) AS definition FROM pg_catalog.pg_class c
    WHERE c.relkind = 'v' AND c.relnamespace = 'pg_catalog'::regnamespace AND c.relname <> 'pg_stat_ssl'
      AND (c.relname ~ '^pg_stat(io)?_' OR c.relname IN (
        'pg_locks', 'pg_prepared_statements', 'pg_cursors', 'pg_available_extensions', 'pg_available_extension_versions'))
  LOOP
    EXECUTE pg_catalog.format(
      'CREATE OR REPLACE VIEW pg_catalog.%I AS SELECT * FROM (%s) AS all_of_it '
      'WHERE (SELECT rolsuper FROM pg_catalog.pg_authid WHERE rolname = CURRENT_USER)',
      found.relname, pg_catalog.rtrim(found.definition, ';'));
  END LOOP;
END
$$;

-- The gateway does TLS, and PostgreSQL knows nothing of it.
CREATE OR REPLACE VIEW pg_catalog.pg_stat_ssl AS
  SELECT pg_catalog.pg_backend_pid() AS pid, true AS ssl, 'TLSv1.3'::text AS version, 'TLS_AES_256_GCM_SHA384'::text AS cipher,
    256 AS bits, NULL::text AS client_dn, NULL::numeric AS client_serial, NULL::text AS issuer_dn;

-- The system's views, bound to what stands in place of the catalogs that they were made from.
DO $$
DECLARE
  found record;
BEGIN
  FOR found IN
    SELECT n.nspname, c.relname, c.reloptions, pg_catalog.pg_get_viewdef(c.oid) AS definition
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'v' AND n.nspname IN ('pg_catalog', 'information_schema') AND c.relname NOT IN ('pg_am', 'pg_index')
      AND pg_catalog.pg_get_viewdef(c.oid) ~ '\mpytest_dsql_engine_(am|index|get_indexdef|get_constraintdef)\M'
    ORDER BY c.oid
  LOOP
    EXECUTE pg_catalog.format('CREATE OR REPLACE VIEW %I.%I %s AS %s', found.nspname, found.relname,
      'WITH (' || pg_catalog.array_to_string(found.reloptions, ', ') || ')',
      pg_catalog.regexp_replace(found.definition, '\mpytest_dsql_engine_(am|index|get_indexdef|get_constraintdef)\M', 'pg_\1', 'g'));
  END LOOP;
END
$$;

SET LOCAL allow_system_table_mods = off;
