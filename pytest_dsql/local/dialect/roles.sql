-- Which IAM identity may connect as which role.

CREATE TABLE pytest_dsql_engine.iam_mapping (
  iam_oid oid PRIMARY KEY,
  arn text NOT NULL,
  pg_role_oid oid NOT NULL,
  grantor_pg_role_oid oid NOT NULL,
  UNIQUE (arn, pg_role_oid)
);
REVOKE ALL ON pytest_dsql_engine.iam_mapping FROM PUBLIC;

CREATE VIEW sys.iam_pg_role_mappings AS
  SELECT m.iam_oid, m.arn, m.pg_role_oid, r.rolname::text AS pg_role_name,
    m.grantor_pg_role_oid, g.rolname::text AS grantor_pg_role_name
  FROM pytest_dsql_engine.iam_mapping m
  JOIN pg_catalog.pg_roles r ON r.oid = m.pg_role_oid
  LEFT JOIN pg_catalog.pg_roles g ON g.oid = m.grantor_pg_role_oid;
GRANT SELECT ON sys.iam_pg_role_mappings TO PUBLIC;

-- As PostgreSQL says it of other statements.
CREATE FUNCTION pytest_dsql_engine.refuse_read_only(tag text) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF pg_catalog.current_setting('transaction_read_only')::boolean THEN
    RAISE EXCEPTION USING
      ERRCODE = 'read_only_sql_transaction', MESSAGE = pg_catalog.format('cannot execute %s in a read-only transaction', tag);
  END IF;
END
$$;

CREATE PROCEDURE pytest_dsql_engine.map_iam_role(role text, arn text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  login boolean;
  id oid;
BEGIN
  PERFORM pytest_dsql_engine.refuse_read_only('AWS IAM GRANT');
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
  INSERT INTO pytest_dsql_engine.iam_mapping AS m (iam_oid, arn, pg_role_oid, grantor_pg_role_oid)
  SELECT coalesce(max(m.iam_oid::bigint), 16383) + 1, map_iam_role.arn, id, session_user::regrole
  FROM pytest_dsql_engine.iam_mapping m
  ON CONFLICT (arn, pg_role_oid) DO NOTHING;
  -- A privilege keeps PostgreSQL from dropping a role that has a mapping; it says on what.
  EXECUTE format('GRANT REFERENCES ON sys.iam_pg_role_mappings TO %I', role);
END
$$;

CREATE PROCEDURE pytest_dsql_engine.unmap_iam_role(role text, arn text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  id oid;
BEGIN
  PERFORM pytest_dsql_engine.refuse_read_only('AWS IAM REVOKE');
  SELECT oid INTO id FROM pg_roles WHERE rolname = role;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'undefined_object', MESSAGE = format('role "%s" does not exist', role);
  END IF;
  IF NOT pg_has_role(session_user, 'admin', 'MEMBER') THEN
    RAISE EXCEPTION USING
      ERRCODE = 'insufficient_privilege', MESSAGE = format('permission denied to revoke IAM trust with role %s', role);
  END IF;
  DELETE FROM pytest_dsql_engine.iam_mapping WHERE pg_role_oid = id AND arn = unmap_iam_role.arn;
  IF NOT EXISTS (SELECT FROM pytest_dsql_engine.iam_mapping WHERE pg_role_oid = id) THEN
    EXECUTE format('REVOKE REFERENCES ON sys.iam_pg_role_mappings FROM %I', role);
  END IF;
END
$$;

-- Schema `public` is a system entity on DSQL (seen in September 2026, of GRANT). Here it belongs to `admin`, and PostgreSQL
-- would drop it with whatever else is `admin`'s.
CREATE FUNCTION pytest_dsql_engine.keep_public() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'public') THEN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = 'feature not supported on system entity';
  END IF;
END
$$;
CREATE EVENT TRIGGER pytest_dsql_engine_public ON ddl_command_end WHEN TAG IN ('DROP OWNED')
EXECUTE FUNCTION pytest_dsql_engine.keep_public();
