-- Asynchronous jobs (AWS user guide, "Asynchronous indexes in Aurora DSQL" and "Systems tables and commands"). A statement
-- submits its job in the client's own transaction, so that nothing is submitted by one that fails or is rolled back; the
-- engine's job runner takes it from there with `start_job` and `finish_job`.
--
-- An index is built by the statement itself, and is then made invalid: that takes milliseconds where it could take
-- seconds on a large table, but the runner needs no lock that a writer, or a transaction that is left open, can keep from
-- it. What the job does later is to look for duplicates, and to show the index to the planner.

CREATE TABLE pytest_dsql_engine.job (
  job_id text PRIMARY KEY,
  status text NOT NULL DEFAULT 'submitted',
  details text,
  job_type text NOT NULL,
  object_id oid,
  object_name text,
  constraint_name name, -- what VALIDATE_CONSTRAINT validates
  duplicates boolean NOT NULL DEFAULT false, -- the statement has seen some
  start_time timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  update_time timestamptz
);

CREATE VIEW sys.jobs AS
  SELECT job_id, status, details, job_type, 1259::oid AS class_id, object_id, object_name, start_time, update_time
  FROM pytest_dsql_engine.job;
GRANT SELECT ON sys.jobs TO PUBLIC;

-- Runs as the superuser: it writes the job, and leaves a new index as DSQL leaves one until its job has ended - invalid,
-- and, when it is to be unique, enforced on what is written from then on. Clients can call it from a function of their
-- own, so it touches no index but those that the session could drop.
CREATE FUNCTION pytest_dsql_engine.submit_job(
  type text, object oid, constraint_name name, is_unique boolean, duplicates boolean) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  shown text := (
    SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = object);
  -- A transaction has one such statement. When a rival makes the engine roll it back and execute it again, in the same
  -- transaction, the client knows the job's id already.
  id text := sys.uuid_to_base32_str(md5(concat(sys.current_transaction_id(), type, shown, constraint_name))::uuid);
BEGIN
  IF type = 'INDEX_BUILD' THEN
    UPDATE pytest_dsql_engine_index SET indisunique = is_unique, indisvalid = false
    WHERE indexrelid = object
      AND pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = object), 'MEMBER');
  END IF;
  INSERT INTO pytest_dsql_engine.job (job_id, job_type, object_id, object_name, constraint_name, duplicates)
  VALUES (id, type, object, shown, constraint_name, duplicates);
  PERFORM pg_notify('pytest_dsql_engine_jobs', '');
  RETURN id;
END
$$;

-- What DSQL asks of an index's keys beside what the rules on its statement ask.
CREATE PROCEDURE pytest_dsql_engine.check_index(target oid, keys text[]) LANGUAGE plpgsql AS $$
DECLARE
  bad text;
BEGIN
  SELECT pg_catalog.format_type(t.oid, NULL) INTO bad
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
  WHERE a.attrelid = target AND a.attname = ANY (keys) AND NOT a.attisdropped
    AND t.oid = ANY (ARRAY['timetz', 'interval', 'bytea', 'json', 'jsonb']::pg_catalog.regtype[])
  ORDER BY pg_catalog.array_position(keys, a.attname::text) LIMIT 1;
  IF bad IS NOT NULL THEN
    RAISE EXCEPTION USING
      ERRCODE = 'feature_not_supported', MESSAGE = pg_catalog.format('datatype %s is not supported in a key', bad);
  END IF;
  IF (SELECT pg_catalog.count(*) FROM pg_catalog.pg_index WHERE indrelid = target) >= pytest_dsql_engine_limits.indexes() THEN
    RAISE EXCEPTION USING
      ERRCODE = 'program_limit_exceeded',
      MESSAGE = pg_catalog.format('more than %s indexes per table are not allowed', pytest_dsql_engine_limits.indexes());
  END IF;
END
$$;

-- Makes an index. A key that PostgreSQL can't sort is, on DSQL, of a type that is not supported in a key.
CREATE PROCEDURE pytest_dsql_engine.make_index(statement text) LANGUAGE plpgsql AS $$
DECLARE
  fault text;
  type text;
BEGIN
  EXECUTE statement;
EXCEPTION WHEN undefined_object THEN
  GET STACKED DIAGNOSTICS fault = MESSAGE_TEXT;
  type := pg_catalog.substring(fault, '^data type (.+) has no default operator class for access method "btree"$');
  IF type IS NULL THEN
    RAISE;
  END IF;
  RAISE EXCEPTION USING
    ERRCODE = 'feature_not_supported', MESSAGE = pg_catalog.format('datatype %s is not supported in a key', type);
END
$$;

-- CREATE INDEX ASYNC. Runs as the client's role, so that the index is the client's and PostgreSQL's own errors are the
-- answer. `fallback` is the statement without UNIQUE, NULL when it has none: it makes the index where there are
-- duplicates.
CREATE FUNCTION pytest_dsql_engine.submit_index(statement text, fallback text, relation text, keys text[]) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  target oid := pg_catalog.to_regclass(relation);
  present oid[];
  made oid;
  duplicates boolean := false;
BEGIN
  CALL pytest_dsql_engine.check_index(target, keys);
  SELECT pg_catalog.array_agg(indexrelid) INTO present FROM pg_catalog.pg_index WHERE indrelid = target;
  IF fallback IS NULL THEN
    CALL pytest_dsql_engine.make_index(statement);
  ELSE
    BEGIN
      CALL pytest_dsql_engine.make_index(statement);
    EXCEPTION WHEN unique_violation THEN
      duplicates := true;
      EXECUTE fallback;
    END;
  END IF;
  SELECT indexrelid INTO made FROM pg_catalog.pg_index
  WHERE indrelid = target AND indexrelid <> ALL (COALESCE(present, ARRAY[]::oid[]));
  RETURN pytest_dsql_engine.submit_job('INDEX_BUILD', made, NULL, fallback IS NOT NULL, duplicates);
END
$$;

-- CREATE INDEX without ASYNC: on empty tables, for sessions that have switched it on.
CREATE PROCEDURE pytest_dsql_engine.create_index(statement text, relation text, keys text[]) LANGUAGE plpgsql AS $$
DECLARE
  filled boolean := pg_catalog.current_setting('dsql.disable_sync_create_index')::boolean;
BEGIN
  IF NOT filled AND pg_catalog.to_regclass(relation) IS NOT NULL THEN
    EXECUTE 'SELECT EXISTS (SELECT FROM ' || relation || ')' INTO filled;
  END IF;
  IF filled THEN
    RAISE EXCEPTION USING
      ERRCODE = 'feature_not_supported', MESSAGE = 'unsupported mode. please use CREATE INDEX ASYNC.';
  END IF;
  CALL pytest_dsql_engine.check_index(pg_catalog.to_regclass(relation), keys);
  CALL pytest_dsql_engine.make_index(statement);
END
$$;

-- ALTER TABLE ASYNC ... VALIDATE CONSTRAINT. `missing` is true for IF EXISTS.
CREATE FUNCTION pytest_dsql_engine.submit_validation(relation text, constraint_ text, missing boolean) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  target oid := CASE WHEN missing THEN pg_catalog.to_regclass(relation) ELSE relation::regclass END;
  shown name;
  owner oid;
  kind "char";
BEGIN
  IF target IS NOT NULL THEN
    SELECT relname, relowner INTO shown, owner FROM pg_catalog.pg_class WHERE oid = target;
    IF NOT pg_catalog.pg_has_role(current_user, owner, 'USAGE') THEN
      RAISE EXCEPTION USING
        ERRCODE = 'insufficient_privilege', MESSAGE = pg_catalog.format('must be owner of table %s', shown);
    END IF;
    SELECT contype INTO kind FROM pg_catalog.pg_constraint WHERE conrelid = target AND conname = constraint_;
    IF NOT FOUND THEN
      RAISE EXCEPTION USING
        ERRCODE = 'undefined_object',
        MESSAGE = pg_catalog.format('constraint "%s" of relation "%s" does not exist', constraint_, shown);
    END IF;
    IF kind NOT IN ('c', 'f') THEN
      RAISE EXCEPTION USING
        ERRCODE = 'wrong_object_type',
        MESSAGE = pg_catalog.format(
          'constraint "%s" of relation "%s" is not a foreign key or check constraint', constraint_, shown);
    END IF;
  END IF;
  RETURN pytest_dsql_engine.submit_job('VALIDATE_CONSTRAINT', target, constraint_, NULL, false);
END
$$;

-- Dropped tables and indexes are cleared away by a job of their own, and the runner learns of jobs without an object.
CREATE FUNCTION pytest_dsql_engine.note_drops() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO pytest_dsql_engine.job (job_id, job_type, object_id)
  SELECT sys.uuid_to_base32_str(gen_random_uuid()), 'DROP', objid FROM pg_event_trigger_dropped_objects()
  WHERE classid = 'pg_class'::regclass AND objsubid = 0 AND (object_type = 'table' OR object_type = 'index' AND original)
    AND NOT is_temporary AND schema_name !~ '^pytest_dsql_engine';
  -- Also for the indexes that went with a column or a table: some of them may be being built.
  IF EXISTS (SELECT FROM pg_event_trigger_dropped_objects() WHERE classid = 'pg_class'::regclass AND objsubid = 0) THEN
    PERFORM pg_notify('pytest_dsql_engine_jobs', '');
  END IF;
END
$$;
CREATE EVENT TRIGGER pytest_dsql_engine_drops ON sql_drop EXECUTE FUNCTION pytest_dsql_engine.note_drops();

-- Waits for a job. What ends while it waits can't be seen in its snapshot, so the runner says it with a lock (see
-- `announced`): waiting needs no transaction of its own, and works inside one.
CREATE PROCEDURE sys.wait_for_job(job_id text, INOUT succeeded boolean DEFAULT NULL)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  job pytest_dsql_engine.job;
  ours boolean;
  pause double precision := 0.005;
BEGIN
  PERFORM sys.base32_str_to_uuid($1);
  SELECT j.* INTO job FROM pytest_dsql_engine.job j WHERE j.job_id = $1;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'no_data_found', MESSAGE = format('job "%s" does not exist', $1);
  END IF;
  SELECT pg_xact_status(j.xmin::text::xid8) = 'in progress' INTO ours FROM pytest_dsql_engine.job j WHERE j.job_id = $1;
  IF ours THEN
    RAISE EXCEPTION USING
      ERRCODE = 'object_not_in_prerequisite_state',
      MESSAGE = format('job "%s" is submitted when its transaction is committed', $1);
  END IF;
  succeeded := CASE job.status WHEN 'completed' THEN true WHEN 'failed' THEN false END;
  WHILE succeeded IS NULL LOOP
    PERFORM pg_sleep(pause);
    pause := least(pause * 1.5, 0.1);
    succeeded := pytest_dsql_engine.announced($1);
  END LOOP;
END
$$;

-- Advisory locks tell what no snapshot hides: the runner's session holds one for each finished job.
CREATE FUNCTION pytest_dsql_engine.announcement(id text, succeeded boolean) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT (pg_catalog.hashtextextended(id, 1685286764) & ~1::bigint) | succeeded::integer $$;

CREATE FUNCTION pytest_dsql_engine.announced(id text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  announcement bigint;
BEGIN
  FOREACH announcement IN ARRAY ARRAY[
    pytest_dsql_engine.announcement(id, false), pytest_dsql_engine.announcement(id, true)] LOOP
    IF NOT pg_catalog.pg_try_advisory_lock_shared(announcement) THEN
      RETURN announcement & 1 = 1;
    END IF;
    PERFORM pg_catalog.pg_advisory_unlock_shared(announcement);
  END LOOP;
  RETURN NULL;
END
$$;

-- The runner's side. None of it is for clients.

CREATE FUNCTION pytest_dsql_engine.unfinished_jobs()
RETURNS TABLE (job_id text, job_type text, status text, submitted_at numeric, is_present boolean)
LANGUAGE sql STABLE AS $$
  SELECT job_id, job_type, status, EXTRACT(epoch FROM start_time),
    job_type = 'DROP' OR object_id IS NULL OR EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = object_id)
  FROM pytest_dsql_engine.job WHERE status IN ('submitted', 'processing') ORDER BY start_time
$$;

CREATE FUNCTION pytest_dsql_engine.finished_jobs() RETURNS TABLE (job_id text, finished_at numeric)
LANGUAGE sql STABLE AS $$
  SELECT job_id, EXTRACT(epoch FROM update_time)
  FROM pytest_dsql_engine.job WHERE status NOT IN ('submitted', 'processing')
$$;

CREATE PROCEDURE pytest_dsql_engine.start_job(id text) LANGUAGE sql AS $$
  UPDATE pytest_dsql_engine.job SET status = 'processing', update_time = pg_catalog.clock_timestamp()
  WHERE job_id = id AND status = 'submitted'
$$;

-- Executes a statement, or answers a question, with the rights of a role: expressions of its tables are not to run with
-- the superuser's. In a function that is its owner's, nothing can take the superuser's identity back.
CREATE FUNCTION pytest_dsql_engine.ask_as(role oid, work text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  answer boolean;
BEGIN
  EXECUTE pg_catalog.format(
    'CREATE OR REPLACE FUNCTION pg_temp.pytest_dsql_engine_work() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS %L',
    pg_catalog.format('DECLARE answer boolean; BEGIN %s; RETURN answer; END', work));
  EXECUTE pg_catalog.format(
    'ALTER FUNCTION pg_temp.pytest_dsql_engine_work() OWNER TO %I', pg_catalog.pg_get_userbyid(role));
  SELECT pg_temp.pytest_dsql_engine_work() INTO answer;
  DROP FUNCTION pg_temp.pytest_dsql_engine_work();
  RETURN answer;
END
$$;

-- The question whether a table has duplicates of an index's keys, as `ask_as` executes it.
CREATE FUNCTION pytest_dsql_engine.duplicates(index oid) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT pg_catalog.format('answer := EXISTS (SELECT FROM (SELECT %s FROM ONLY %s %s) AS keys WHERE %s GROUP BY %s HAVING count(*) > 1)',
    pg_catalog.string_agg(pg_catalog.format('%s AS k%s', pg_catalog.pg_get_indexdef(indexrelid, place, false), place), ', ' ORDER BY place),
    indrelid::regclass,
    'WHERE ' || pg_catalog.pg_get_expr(indpred, indrelid),
    CASE WHEN indnullsnotdistinct THEN 'true'
      ELSE pg_catalog.string_agg(pg_catalog.format('k%s IS NOT NULL', place), ' AND ') END,
    pg_catalog.string_agg('k' || place, ', '))
  FROM pg_catalog.pg_index, pg_catalog.generate_series(1, indnkeyatts) AS place
  WHERE indexrelid = index
  GROUP BY indexrelid, indrelid, indpred, indnullsnotdistinct
$$;

-- Ends a job and gives its new status; NULL when it has ended before. Raises what lock_timeout raises when another
-- session is changing the same table.
CREATE FUNCTION pytest_dsql_engine.finish_job(id text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  job pytest_dsql_engine.job;
  target oid;
  owner oid;
  failure text;
  skipped text;
BEGIN
  SELECT j.* INTO job FROM pytest_dsql_engine.job j
  WHERE j.job_id = id AND j.status IN ('submitted', 'processing') FOR UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF job.job_type <> 'DROP' AND job.object_id IS NOT NULL THEN
    target := COALESCE((SELECT indrelid FROM pg_catalog.pg_index WHERE indexrelid = job.object_id), job.object_id);
    IF EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = target) THEN
      -- Keeps other changes of the table out, and waits for them, but neither for nor against writers.
      EXECUTE pg_catalog.format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', target::regclass);
    END IF;
    SELECT relowner INTO owner FROM pg_catalog.pg_class WHERE oid = job.object_id;
    IF NOT FOUND THEN
      skipped := CASE job.job_type WHEN 'INDEX_BUILD' THEN pg_catalog.format('relation "%s" does not exist', job.object_name)
        ELSE 'Skipped job for nonexistent table.' END;
    ELSIF job.job_type = 'INDEX_BUILD' THEN
      IF job.duplicates AND pytest_dsql_engine.ask_as(owner, pytest_dsql_engine.duplicates(job.object_id)) THEN
        -- As seen on clusters in July and August 2026; the user guide has another text.
        failure := 'found duplicate key(s) while validating index uniqueness';
      ELSE
        UPDATE pg_catalog.pytest_dsql_engine_index SET indisvalid = true WHERE indexrelid = job.object_id;
        -- Plans are kept by the tables they read: this makes sessions plan anew, with the index.
        UPDATE pg_catalog.pg_class SET relhasindex = true WHERE oid = target;
      END IF;
    ELSIF NOT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid = target AND conname = job.constraint_name) THEN
      skipped := pg_catalog.format(
        'constraint "%s" of relation "%s" does not exist', job.constraint_name, (SELECT relname FROM pg_catalog.pg_class WHERE oid = target));
    ELSE
      BEGIN
        PERFORM pytest_dsql_engine.ask_as(owner, pg_catalog.format(
          'ALTER TABLE %s VALIDATE CONSTRAINT %I', target::regclass, job.constraint_name));
      EXCEPTION
        WHEN lock_not_available OR serialization_failure OR deadlock_detected THEN
          RAISE;
        WHEN others THEN
          failure := SQLERRM;
      END;
    END IF;
  END IF;
  UPDATE pytest_dsql_engine.job AS j
  SET status = CASE WHEN failure IS NULL THEN 'completed' ELSE 'failed' END, details = COALESCE(failure, skipped),
    update_time = pg_catalog.clock_timestamp()
  WHERE j.job_id = id
  RETURNING j.status INTO job.status;
  RETURN job.status;
END
$$;

-- For a job that can't be finished at all.
CREATE PROCEDURE pytest_dsql_engine.fail_job(id text, reason text) LANGUAGE sql AS $$
  UPDATE pytest_dsql_engine.job SET status = 'failed', details = reason, update_time = pg_catalog.clock_timestamp()
  WHERE job_id = id
$$;

-- Tells those who wait how a job has ended, once its end is committed.
CREATE PROCEDURE pytest_dsql_engine.announce_job(id text) LANGUAGE sql AS $$
  SELECT pg_catalog.pg_advisory_lock(pytest_dsql_engine.announcement(job_id, status = 'completed'))
  FROM pytest_dsql_engine.job WHERE job_id = id
$$;

-- Finished jobs are shown for about 30 minutes (AWS user guide, "Systems tables and commands").
CREATE PROCEDURE pytest_dsql_engine.forget_job(id text) LANGUAGE sql AS $$
  SELECT pg_catalog.pg_advisory_unlock(pytest_dsql_engine.announcement(job_id, status = 'completed'))
  FROM pytest_dsql_engine.job WHERE job_id = id;
  DELETE FROM pytest_dsql_engine.job WHERE job_id = id
$$;

REVOKE EXECUTE ON PROCEDURE pytest_dsql_engine.start_job, pytest_dsql_engine.fail_job, pytest_dsql_engine.announce_job,
  pytest_dsql_engine.forget_job
FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION pytest_dsql_engine.ask_as, pytest_dsql_engine.finish_job, pytest_dsql_engine.unfinished_jobs,
  pytest_dsql_engine.finished_jobs
FROM PUBLIC;
