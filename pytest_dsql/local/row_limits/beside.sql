-- DDL beside what called functions write. Statements that write by themselves are told by their words, before they come
-- here (`transaction_rules`); what a function does shows only in what was counted.

-- Whoever writes a row after this is over any limit.
CREATE FUNCTION pytest_dsql_engine_limits.nothing_more() RETURNS void LANGUAGE sql AS $$
  SELECT pg_catalog.set_config_by_name('pytest_dsql_engine.written', '4611686018427387904', true)
$$;

CREATE FUNCTION pytest_dsql_engine_limits.before_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF pytest_dsql_engine_limits.written() BETWEEN 68719476736 AND 4611686018427387903
    AND NOT (SELECT rolsuper FROM pg_authid WHERE rolname = session_user)
  THEN
    PERFORM pytest_dsql_engine_limits.refuse_mixture();
  END IF;
END
$$;

CREATE EVENT TRIGGER pytest_dsql_engine_limits_before ON ddl_command_start
EXECUTE FUNCTION pytest_dsql_engine_limits.before_ddl();

CREATE FUNCTION pytest_dsql_engine_limits.beside_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT (SELECT rolsuper FROM pg_authid WHERE rolname = session_user) THEN
    PERFORM pytest_dsql_engine_limits.nothing_more();
  END IF;
END
$$;

CREATE EVENT TRIGGER pytest_dsql_engine_limits_beside ON ddl_command_end
EXECUTE FUNCTION pytest_dsql_engine_limits.beside_ddl();
