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

CREATE PROCEDURE pytest_dsql_engine.map_iam_role(role text, arn text)
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
  INSERT INTO pytest_dsql_engine.iam_mapping AS m (iam_oid, arn, pg_role_oid, grantor_pg_role_oid)
  SELECT coalesce(max(m.iam_oid::bigint), 16383) + 1, map_iam_role.arn, id, session_user::regrole
  FROM pytest_dsql_engine.iam_mapping m
  ON CONFLICT (arn, pg_role_oid) DO NOTHING;
  -- A privilege on a table of ours keeps PostgreSQL from dropping a role that has a mapping.
  EXECUTE format('GRANT REFERENCES ON pytest_dsql_engine.iam_mapping TO %I', role);
END
$$;

CREATE PROCEDURE pytest_dsql_engine.unmap_iam_role(role text, arn text)
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
  DELETE FROM pytest_dsql_engine.iam_mapping WHERE pg_role_oid = id AND arn = unmap_iam_role.arn;
  IF NOT EXISTS (SELECT FROM pytest_dsql_engine.iam_mapping WHERE pg_role_oid = id) THEN
    EXECUTE format('REVOKE REFERENCES ON pytest_dsql_engine.iam_mapping FROM %I', role);
  END IF;
END
$$;
