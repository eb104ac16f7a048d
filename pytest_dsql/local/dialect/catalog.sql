-- What the engine's PostgreSQL holds before the first client comes: run once, in database "postgres", by the bootstrap
-- superuser, before the other files of this directory. It makes DSQL's role and its `sys` schema, and the functions that
-- rewritten statements call.

-- The role that the engine itself logs in as. System objects belong to the bootstrap superuser, whose name clients see
-- as their owner.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'pytest_dsql_engine') THEN
    CREATE ROLE pytest_dsql_engine LOGIN SUPERUSER;
  END IF;
END
$$;

-- What the engine keeps for itself. Clients call some of its functions, in statements rewritten for them.
CREATE SCHEMA pytest_dsql_engine;
GRANT USAGE ON SCHEMA pytest_dsql_engine TO PUBLIC;

-- The built-in role: it owns the database, and with it schema public, but is no superuser.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'admin') THEN
    CREATE ROLE admin LOGIN CREATEROLE;
  END IF;
END
$$;
ALTER DATABASE postgres OWNER TO admin;
REVOKE ALL ON DATABASE postgres FROM PUBLIC;
GRANT CONNECT ON DATABASE postgres TO PUBLIC;
-- Nothing temporary on DSQL: `CREATE TABLE pg_temp.t` says so nowhere in its parse tree's flags.
REVOKE TEMPORARY ON DATABASE postgres FROM admin;
ALTER SCHEMA public OWNER TO admin;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;

ALTER DATABASE postgres SET timezone = 'UTC';
ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read';
ALTER DATABASE postgres SET default_text_search_config = 'pg_catalog.simple';
ALTER DATABASE postgres SET dsql.enable_batched_nestloop = 'on';
ALTER DATABASE postgres SET dsql.disable_sync_create_index = 'on';

-- DSQL knows the configuration `simple` only.
DO $$
DECLARE
  configuration text;
BEGIN
  FOR configuration IN SELECT cfgname FROM pg_catalog.pg_ts_config WHERE cfgname <> 'simple' LOOP
    EXECUTE pg_catalog.format('DROP TEXT SEARCH CONFIGURATION pg_catalog.%I', configuration);
  END LOOP;
END
$$;

-- Nor does it know stemmers (seen on a cluster in August 2026).
DROP TEXT SEARCH TEMPLATE pg_catalog.snowball CASCADE;

-- In these encodings a byte of a character may be a backslash, so that a text reads differently where the encoding is
-- not known, and the rules could be evaded. Without a conversion PostgreSQL refuses them as a client's encoding.
DELETE FROM pg_catalog.pg_conversion
WHERE pg_catalog.pg_encoding_to_char(conforencoding) = ANY (
    ARRAY['SJIS', 'BIG5', 'GBK', 'UHC', 'GB18030', 'JOHAB', 'SHIFT_JIS_2004'])
  OR pg_catalog.pg_encoding_to_char(contoencoding) = ANY (
    ARRAY['SJIS', 'BIG5', 'GBK', 'UHC', 'GB18030', 'JOHAB', 'SHIFT_JIS_2004']);

-- An UPDATE of this view sets parameters, whatever the rules on SET say.
REVOKE UPDATE ON pg_catalog.pg_settings FROM PUBLIC;

CREATE SCHEMA sys;
GRANT USAGE ON SCHEMA sys TO PUBLIC;

-- The server's names for itself.

CREATE FUNCTION sys.dsql_major_version() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 1';

-- PostgreSQL calls its built-in functions by number whatever the catalog says of them, so they are not replaced: they
-- are renamed (to what they are called in its source), and new ones take their names.
ALTER FUNCTION pg_catalog.version() RENAME TO pgsql_version;
ALTER FUNCTION pg_catalog.current_setting(text) RENAME TO show_config_by_name;
ALTER FUNCTION pg_catalog.current_setting(text, boolean) RENAME TO show_config_by_name_missing_ok;
ALTER FUNCTION pg_catalog.set_config(text, text, boolean) RENAME TO set_config_by_name;

CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql STABLE STRICT PARALLEL SAFE
AS $$ SELECT 'PostgreSQL 16'::text $$;

-- Not STRICT, so that PostgreSQL can put the body in place of the call.
CREATE FUNCTION pg_catalog.current_setting(text, boolean) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT CASE pg_catalog.lower($1)
    WHEN 'server_version' THEN '16.15'
    WHEN 'server_version_num' THEN '160015'
    WHEN 'default_toast_compression' THEN 'lz4'
    WHEN 'max_connections' THEN '20'
    WHEN 'work_mem' THEN '128MB'
    -- Nobody waits for a lock; the engine needs it for that.
    WHEN 'lock_timeout' THEN '0'
    -- In the sandbox of a contested transaction the path is another one; the client's, which may be empty, stands behind
    -- an equals sign.
    WHEN 'search_path' THEN COALESCE(
      pg_catalog.substr(NULLIF(pg_catalog.show_config_by_name_missing_ok('pytest_dsql_engine.search_path', true), ''), 2),
      pg_catalog.show_config_by_name('search_path'))
    WHEN 'disable_sync_create_index' THEN pg_catalog.show_config_by_name_missing_ok('dsql.disable_sync_create_index', $2)
    ELSE pg_catalog.show_config_by_name_missing_ok($1, $2)
  END
$$;

CREATE FUNCTION pg_catalog.current_setting(text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT pg_catalog.current_setting($1, false) $$;

-- Nor are the engine's schemas on the path of a contested transaction anybody's business.
ALTER FUNCTION pg_catalog.current_schema() RENAME TO pytest_dsql_engine_current_schema;
ALTER FUNCTION pg_catalog.current_schemas(boolean) RENAME TO pytest_dsql_engine_current_schemas;
CREATE FUNCTION pg_catalog.current_schemas(boolean) RETURNS name[] LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
  SELECT CASE WHEN NULLIF(pg_catalog.show_config_by_name_missing_ok('pytest_dsql_engine.search_path', true), '') IS NULL
    THEN pg_catalog.pytest_dsql_engine_current_schemas($1)
    ELSE ARRAY(
      SELECT schema FROM pg_catalog.unnest(pg_catalog.pytest_dsql_engine_current_schemas($1)) WITH ORDINALITY AS path(schema, place)
      WHERE NOT pg_catalog.starts_with(schema::text, 'pytest_dsql_engine') ORDER BY place)
  END
$$;
CREATE FUNCTION pg_catalog.current_schema() RETURNS name LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT (pg_catalog.current_schemas(false))[1]
$$;

-- The names are those of the rule `parameter`, and `jit`: asyncpg switches it off around the queries by which it learns
-- types, and must not fail for that. A function that holds a call of it can be made, and fails when it is executed (seen on
-- a cluster in August 2026).
CREATE FUNCTION pg_catalog.set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  parameter text := pg_catalog.lower($1);
BEGIN
  IF parameter <> ALL (ARRAY[
    'application_name', 'client_encoding', 'datestyle', 'extra_float_digits', 'intervalstyle', 'timezone',
    'search_path', 'enable_bitmapscan', 'enable_hashjoin', 'enable_indexonlyscan', 'enable_indexscan',
    'enable_material', 'enable_mergejoin', 'enable_nestloop', 'enable_seqscan', 'dsql.enable_batched_nestloop',
    'disable_sync_create_index', 'jit'
  ]) THEN
    -- As the rules `reserved-parameter-prefix` and `parameter` have it.
    IF pg_catalog.starts_with(parameter, 'dsql.') THEN
      RAISE EXCEPTION USING
        ERRCODE = 'invalid_name',
        MESSAGE = pg_catalog.format('invalid configuration parameter name "%s"', parameter),
        DETAIL = '"dsql" is a reserved prefix.';
    END IF;
    RAISE EXCEPTION USING
      ERRCODE = 'feature_not_supported',
      MESSAGE = pg_catalog.format('setting configuration parameter "%s" not supported', parameter);
  END IF;
  -- As the rule `engine-search-path` has it.
  IF parameter = 'search_path' AND pg_catalog.strpos(pg_catalog.lower($2), 'pytest_dsql_engine') > 0 THEN
    RAISE EXCEPTION USING
      ERRCODE = 'invalid_parameter_value',
      MESSAGE = pg_catalog.format('invalid value for parameter "search_path": "%s"', $2);
  END IF;
  -- PostgreSQL knows neither, and would keep any text. As the rule `boolean-parameter` has it.
  IF parameter IN ('dsql.enable_batched_nestloop', 'disable_sync_create_index') AND NOT pg_catalog.pg_input_is_valid($2, 'boolean') THEN
    RAISE EXCEPTION USING
      ERRCODE = 'invalid_parameter_value', MESSAGE = pg_catalog.format('parameter "%s" requires a Boolean value', parameter);
  END IF;
  IF parameter = 'disable_sync_create_index' THEN
    parameter := 'dsql.disable_sync_create_index';
  END IF;
  RETURN pg_catalog.set_config_by_name(parameter, $2, $3);
END
$$;

-- Job ids: 128 bits in lower-case base32 (RFC 4648, without padding).

CREATE FUNCTION sys.uuid_to_base32_str(id uuid) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT pg_catalog.string_agg(
    pg_catalog.substr('abcdefghijklmnopqrstuvwxyz234567',
      pg_catalog.substring(bits, place * 5 + 1, 5)::pg_catalog.bit(5)::integer + 1, 1),
    '' ORDER BY place)
  FROM (SELECT ('x' || pg_catalog.replace(id::text, '-', '') || '0')::pg_catalog.bit(132)) AS number(bits),
    pg_catalog.generate_series(0, 25) AS place
$$;

CREATE FUNCTION sys.base32_str_to_uuid(text) RETURNS uuid LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  bits bit varying := '';
  hexadecimal text := '';
BEGIN
  IF $1 !~ '^[a-z2-7]{25}[aeimquy4]$' THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_text_representation', MESSAGE = 'Unable to convert text to UUID';
  END IF;
  FOR place IN 1..26 LOOP
    bits := bits
      || (pg_catalog.strpos('abcdefghijklmnopqrstuvwxyz234567', pg_catalog.substr($1, place, 1)) - 1)::pg_catalog.bit(5);
  END LOOP;
  FOR place IN 0..31 LOOP
    hexadecimal := hexadecimal || pg_catalog.to_hex(pg_catalog.substring(bits, place * 4 + 1, 4)::pg_catalog.bit(4)::integer);
  END LOOP;
  RETURN hexadecimal::uuid;
END
$$;

-- ALTER TABLE with what a primary key forbids; whether a column or a constraint belongs to one, only the catalog knows.
CREATE PROCEDURE pytest_dsql_engine.alter_table(statement text, relation text, columns text[], constraints text[])
LANGUAGE plpgsql AS $$
DECLARE
  target oid := pg_catalog.to_regclass(relation);
  keyed text;
BEGIN
  SELECT a.attname INTO keyed
  FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey)
  WHERE c.conrelid = target AND c.contype = 'p' AND a.attname = ANY (columns) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING
      ERRCODE = 'feature_not_supported', MESSAGE = pg_catalog.format('cannot drop primary key column %s', keyed);
  END IF;
  PERFORM FROM pg_catalog.pg_constraint
  WHERE conrelid = target AND contype = 'p' AND conname = ANY (constraints);
  IF FOUND THEN
    RAISE EXCEPTION USING
      ERRCODE = 'feature_not_supported', MESSAGE = 'unsupported ALTER TABLE DROP CONSTRAINT statement';
  END IF;
  EXECUTE statement;
END
$$;

-- Clients have no triggers, and those of the engine are not there for them: what is asked of one finds none. `rest` are the
-- other actions of an ALTER TABLE, NULL when there are none.
CREATE FUNCTION pytest_dsql_engine.skipped(relation text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT pg_catalog.format('relation "%s" does not exist, skipping',
    pg_catalog.array_to_string(pg_catalog.parse_ident(relation), '.'))
$$;

CREATE PROCEDURE pytest_dsql_engine.alter_triggers(rest text, relation text, missing_ok boolean, names text[])
LANGUAGE plpgsql AS $$
DECLARE
  target oid := CASE WHEN missing_ok THEN pg_catalog.to_regclass(relation) ELSE relation::regclass END;
  shown name;
  owner oid;
BEGIN
  IF target IS NULL THEN
    RAISE NOTICE USING MESSAGE = pytest_dsql_engine.skipped(relation);
    RETURN;
  END IF;
  SELECT relname, relowner INTO shown, owner FROM pg_catalog.pg_class WHERE oid = target;
  IF NOT pg_catalog.pg_has_role(current_user, owner, 'USAGE') THEN
    RAISE EXCEPTION USING
      ERRCODE = 'insufficient_privilege', MESSAGE = pg_catalog.format('must be owner of table %s', shown);
  END IF;
  IF pg_catalog.cardinality(names) > 0 THEN
    RAISE EXCEPTION USING
      ERRCODE = 'undefined_object', MESSAGE = pg_catalog.format('trigger "%s" for table "%s" does not exist', names[1], shown);
  END IF;
  IF rest IS NOT NULL THEN
    EXECUTE rest;
  END IF;
END
$$;

CREATE PROCEDURE pytest_dsql_engine.drop_trigger(trigger text, relation text, missing_ok boolean) LANGUAGE plpgsql AS $$
DECLARE
  target oid := CASE WHEN missing_ok THEN pg_catalog.to_regclass(relation) ELSE relation::regclass END;
  shown name := (SELECT relname FROM pg_catalog.pg_class WHERE oid = target);
BEGIN
  IF NOT missing_ok THEN
    RAISE EXCEPTION USING
      ERRCODE = 'undefined_object', MESSAGE = pg_catalog.format('trigger "%s" for table "%s" does not exist', trigger, shown);
  END IF;
  RAISE NOTICE USING MESSAGE = CASE WHEN target IS NULL THEN pytest_dsql_engine.skipped(relation) ELSE
    pg_catalog.format('trigger "%s" for relation "%s" does not exist, skipping', trigger, shown) END;
END
$$;
