-- What the engine's PostgreSQL holds before the first client comes: run once, in database "postgres", by the bootstrap
-- superuser. It makes DSQL's role and its `sys` schema, and the functions that rewritten statements call.

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
    WHEN 'disable_sync_create_index' THEN pg_catalog.show_config_by_name_missing_ok('dsql.disable_sync_create_index', $2)
    ELSE pg_catalog.show_config_by_name_missing_ok($1, $2)
  END
$$;

CREATE FUNCTION pg_catalog.current_setting(text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT pg_catalog.current_setting($1, false) $$;

-- The names are the ones of the rule `set-config`.
CREATE FUNCTION pg_catalog.set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  parameter text := pg_catalog.lower($1);
BEGIN
  IF parameter <> ALL (ARRAY[
    'application_name', 'client_encoding', 'datestyle', 'extra_float_digits', 'intervalstyle', 'timezone',
    'search_path', 'enable_bitmapscan', 'enable_hashjoin', 'enable_indexonlyscan', 'enable_indexscan',
    'enable_material', 'enable_mergejoin', 'enable_nestloop', 'enable_seqscan', 'dsql.enable_batched_nestloop',
    'disable_sync_create_index', 'role', 'jit'
  ]) THEN
    RAISE EXCEPTION USING
      ERRCODE = 'feature_not_supported',
      MESSAGE = pg_catalog.format('setting configuration parameter "%s" not supported', parameter);
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

-- Jobs. They are done at once, so that they are finished when the client hears of them.

CREATE TABLE sys.job_record (
  job_id text PRIMARY KEY,
  status text NOT NULL,
  details text,
  job_type text NOT NULL,
  class_id oid NOT NULL DEFAULT 1259,
  object_id oid,
  object_name text,
  start_time timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  update_time timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
REVOKE ALL ON sys.job_record FROM PUBLIC;

-- Finished jobs are shown for 30 minutes (AWS user guide, "Systems tables and commands").
CREATE VIEW sys.jobs AS
  SELECT job_id, status, details, job_type, class_id, object_id, object_name, start_time, update_time
  FROM sys.job_record
  WHERE update_time > pg_catalog.now() - interval '30 minutes';
GRANT SELECT ON sys.jobs TO PUBLIC;

-- Runs as the superuser: it writes the job, and when `failed_index` is given, leaves that index as a failed unique
-- build leaves it - invalid, and enforced on what is written from then on. Clients can call it from a function of their
-- own, so it touches no index but those that the session could drop.
CREATE FUNCTION sys.record_job(type text, status text, details text, object oid, failed_index boolean) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  id text := sys.uuid_to_base32_str(gen_random_uuid());
BEGIN
  IF failed_index THEN
    UPDATE pg_index SET indisunique = true, indisvalid = false
    WHERE indexrelid = object
      AND pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = object), 'MEMBER');
  END IF;
  INSERT INTO sys.job_record (job_id, status, details, job_type, object_id, object_name)
  SELECT id, status, details, type, object, (
    SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = object
  );
  RETURN id;
END
$$;

-- Runs as the client's role, so that the index is the client's and PostgreSQL's own errors are the answer. `fallback`
-- is the statement without UNIQUE: it makes the index that a failed unique build leaves behind.
CREATE FUNCTION sys.run_job(type text, statement text, fallback text, relation text, keys text[]) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  target oid := pg_catalog.to_regclass(relation);
  present oid[];
  made oid;
  bad text;
  failure text;
BEGIN
  IF type = 'INDEX_BUILD' THEN
    SELECT pg_catalog.array_agg(indexrelid) INTO present FROM pg_catalog.pg_index WHERE indrelid = target;
    SELECT pg_catalog.format_type(t.oid, NULL) INTO bad
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = target AND a.attname = ANY (keys) AND NOT a.attisdropped
      AND t.oid = ANY (ARRAY['timetz', 'interval', 'bytea', 'json', 'jsonb']::pg_catalog.regtype[])
    ORDER BY pg_catalog.array_position(keys, a.attname::text) LIMIT 1;
    IF bad IS NOT NULL THEN
      RAISE EXCEPTION USING
        ERRCODE = 'feature_not_supported',
        MESSAGE = pg_catalog.format('datatype %s is not supported in a key', bad);
    END IF;
    IF pg_catalog.cardinality(present) >= 24 THEN
      RAISE EXCEPTION USING
        ERRCODE = 'program_limit_exceeded', MESSAGE = 'more than 24 indexes per table are not allowed';
    END IF;
  END IF;
  BEGIN
    EXECUTE statement;
  EXCEPTION
    WHEN unique_violation THEN
      IF fallback IS NULL THEN
        RAISE;
      END IF;
      failure := 'Found duplicate key while validating index for UCVs';
      EXECUTE fallback;
    WHEN check_violation OR foreign_key_violation THEN
      failure := SQLERRM;
  END;
  IF type = 'INDEX_BUILD' THEN
    SELECT indexrelid INTO made FROM pg_catalog.pg_index
    WHERE indrelid = target AND indexrelid <> ALL (COALESCE(present, ARRAY[]::oid[]));
  ELSE
    made := target;
  END IF;
  RETURN sys.record_job(
    type, CASE WHEN failure IS NULL THEN 'completed' ELSE 'failed' END, failure, made,
    failure IS NOT NULL AND type = 'INDEX_BUILD');
END
$$;

CREATE PROCEDURE sys.wait_for_job(job_id text, INOUT succeeded boolean DEFAULT NULL) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  PERFORM sys.base32_str_to_uuid(job_id);
  SELECT jobs.status = 'completed' INTO succeeded FROM sys.jobs WHERE jobs.job_id = job_id;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'no_data_found', MESSAGE = pg_catalog.format('job "%s" does not exist', job_id);
  END IF;
END
$$;

-- ALTER TABLE with what a primary key forbids; whether a column or a constraint belongs to one, only the catalog knows.
CREATE PROCEDURE sys.alter_table(statement text, relation text, columns text[], constraints text[]) LANGUAGE plpgsql AS $$
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

-- Which IAM identity may connect as which role.

CREATE TABLE sys.iam_role_map (
  iam_oid oid PRIMARY KEY,
  arn text NOT NULL,
  pg_role_oid oid NOT NULL,
  grantor_pg_role_oid oid NOT NULL,
  UNIQUE (arn, pg_role_oid)
);
REVOKE ALL ON sys.iam_role_map FROM PUBLIC;

CREATE VIEW sys.iam_pg_role_mappings AS
  SELECT m.iam_oid, m.arn, m.pg_role_oid, r.rolname::text AS pg_role_name,
    m.grantor_pg_role_oid, g.rolname::text AS grantor_pg_role_name
  FROM sys.iam_role_map m
  JOIN pg_catalog.pg_roles r ON r.oid = m.pg_role_oid
  LEFT JOIN pg_catalog.pg_roles g ON g.oid = m.grantor_pg_role_oid;
GRANT SELECT ON sys.iam_pg_role_mappings TO PUBLIC;

CREATE PROCEDURE sys.map_iam_role(role text, arn text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  login boolean;
  id oid;
BEGIN
  SELECT oid, rolcanlogin INTO id, login FROM pg_roles WHERE rolname = role;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'undefined_object', MESSAGE = format('role "%s" does not exist', role);
  END IF;
  IF NOT pg_has_role(session_user, 'admin', 'MEMBER') THEN
    RAISE EXCEPTION USING
      ERRCODE = 'insufficient_privilege', MESSAGE = format('permission denied to grant IAM trust with role %s', role);
  END IF;
  IF NOT login THEN
    RAISE EXCEPTION USING
      ERRCODE = 'object_not_in_prerequisite_state', MESSAGE = format('role %s must have the LOGIN attribute', role);
  END IF;
  IF map_iam_role.arn !~ '^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/.+$' THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'IAM role must look like an IAM ARN';
  END IF;
  INSERT INTO sys.iam_role_map AS m (iam_oid, arn, pg_role_oid, grantor_pg_role_oid)
  SELECT coalesce(max(m.iam_oid::bigint), 16383) + 1, map_iam_role.arn, id, session_user::regrole
  FROM sys.iam_role_map m
  ON CONFLICT (arn, pg_role_oid) DO NOTHING;
  -- A privilege on a table of ours keeps PostgreSQL from dropping a role that has a mapping.
  EXECUTE format('GRANT REFERENCES ON sys.iam_role_map TO %I', role);
END
$$;

CREATE PROCEDURE sys.unmap_iam_role(role text, arn text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  id oid;
BEGIN
  SELECT oid INTO id FROM pg_roles WHERE rolname = role;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'undefined_object', MESSAGE = format('role "%s" does not exist', role);
  END IF;
  IF NOT pg_has_role(session_user, 'admin', 'MEMBER') THEN
    RAISE EXCEPTION USING
      ERRCODE = 'insufficient_privilege', MESSAGE = format('permission denied to revoke IAM trust with role %s', role);
  END IF;
  DELETE FROM sys.iam_role_map WHERE pg_role_oid = id AND arn = unmap_iam_role.arn;
  IF NOT EXISTS (SELECT FROM sys.iam_role_map WHERE pg_role_oid = id) THEN
    EXECUTE format('REVOKE REFERENCES ON sys.iam_role_map FROM %I', role);
  END IF;
END
$$;
