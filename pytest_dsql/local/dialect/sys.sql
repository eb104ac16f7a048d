-- The functions of DSQL's schema `sys` that mean something here. Their names are those of a cluster of September 2026; what
-- they take and give is documented for few of them (AWS user guide, "Systems tables and commands"), the rest is inferred
-- from the names.

-- What the clients' tables take, and what a cluster may take at most unless AWS raises it, in bytes.
CREATE FUNCTION sys.cluster_size() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
  SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)::bigint
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'S') AND n.nspname !~ '^(pg_|pytest_dsql_engine|information_schema$)'
$$;
CREATE FUNCTION sys.cluster_size_limit() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 10995116277760 $$;

CREATE FUNCTION sys.current_session_id() RETURNS uuid LANGUAGE sql STABLE AS $$
  SELECT pg_catalog.md5(pid::text || backend_start::text)::uuid
  FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())
$$;
CREATE FUNCTION sys.current_transaction_id() RETURNS uuid LANGUAGE sql STABLE AS $$
  SELECT pg_catalog.md5(sys.current_session_id()::text || pg_catalog.transaction_timestamp()::text)::uuid
$$;

-- Who signed the token that the session began with: the gateway says it when it opens the backend.
CREATE FUNCTION sys.iam_session_user() RETURNS text LANGUAGE sql STABLE AS $$
  SELECT pg_catalog.current_setting('pytest_dsql_engine.principal', true)
$$;

-- AWS user guide, "Supported data types in Aurora DSQL".
CREATE FUNCTION sys.supported_datatypes() RETURNS SETOF regtype LANGUAGE sql IMMUTABLE AS $$
  SELECT pg_catalog.unnest(ARRAY[
    'smallint', 'integer', 'bigint', 'real', 'double precision', 'numeric', 'character', 'character varying', 'text', 'date',
    'time', 'timetz', 'timestamp', 'timestamptz', 'interval', 'boolean', 'bytea', 'uuid', 'json', 'jsonb'
  ]::regtype[])
$$;

-- The type itself, or what a domain is made of in the end.
CREATE FUNCTION sys.base_type_oid(oid) RETURNS oid LANGUAGE sql STABLE STRICT AS $$
  WITH RECURSIVE base(oid, under) AS (
    SELECT oid, typbasetype FROM pg_catalog.pg_type WHERE oid = $1
    UNION ALL SELECT t.oid, t.typbasetype FROM base JOIN pg_catalog.pg_type t ON t.oid = base.under
  ) SELECT oid FROM base WHERE under = 0
$$;

-- Why a job has failed; null for one that has not.
CREATE FUNCTION sys.job_err_msg(job_id text) RETURNS text LANGUAGE sql STABLE STRICT AS $$
  SELECT details FROM sys.jobs j WHERE j.job_id = $1 AND j.status = 'failed'
$$;
