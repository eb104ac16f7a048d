-- Helpers are made, made anew and removed with what they belong to, in the transaction of the client's statement.

CREATE FUNCTION pytest_dsql_engine_sandbox.is_hidden(schema text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT starts_with(schema, 'pytest_dsql_engine')
$$;

CREATE FUNCTION pytest_dsql_engine_sandbox.is_clients(schema text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT NOT starts_with(schema, 'pg_') AND schema NOT IN ('sys', 'information_schema')
    AND NOT pytest_dsql_engine_sandbox.is_hidden(schema)
$$;

-- PostgreSQL must not keep clients from changing what helpers are made from, nor tell them that helpers depend on it: so
-- it isn't told of that.
CREATE FUNCTION pytest_dsql_engine_sandbox.detach(helpers oid[]) RETURNS void
LANGUAGE sql AS $$
  WITH helper AS (
    SELECT 'pg_class'::regclass::oid AS classid, oid AS objid FROM unnest(helpers) AS oid WHERE oid IS NOT NULL
    UNION ALL SELECT 'pg_rewrite'::regclass, oid FROM pg_rewrite WHERE ev_class = ANY (helpers)
    UNION ALL SELECT 'pg_attrdef'::regclass, oid FROM pg_attrdef WHERE adrelid = ANY (helpers)
    UNION ALL SELECT 'pg_constraint'::regclass, oid FROM pg_constraint WHERE conrelid = ANY (helpers)
    UNION ALL SELECT 'pg_class'::regclass, indexrelid FROM pytest_dsql_engine_index WHERE indrelid = ANY (helpers)
    UNION ALL SELECT 2620, oid FROM pytest_dsql_engine_trigger WHERE tgrelid = ANY (helpers) -- pg_trigger
  )
  DELETE FROM pg_depend AS d USING helper AS h
  WHERE d.classid = h.classid AND d.objid = h.objid AND d.deptype = 'n'
    AND (d.refclassid, d.refobjid) NOT IN (SELECT classid, objid FROM helper) AND d.refclassid <> 'pg_namespace'::regclass
$$;

-- Whoever may use the table may use its view.
CREATE FUNCTION pytest_dsql_engine_sandbox.copy_privileges(relation oid, view oid) RETURNS void
LANGUAGE sql AS $$
  UPDATE pg_class AS v SET relacl = COALESCE(b.relacl, acldefault('r', b.relowner))
  FROM pg_class AS b WHERE b.oid = relation AND v.oid = view AND v.relacl IS DISTINCT FROM COALESCE(b.relacl, acldefault('r', b.relowner));
  UPDATE pg_attribute AS v SET attacl = b.attacl
  FROM pg_attribute AS b WHERE b.attrelid = relation AND v.attrelid = view AND v.attname = b.attname
    AND b.attnum > 0 AND v.attacl IS DISTINCT FROM b.attacl;
$$;

CREATE FUNCTION pytest_dsql_engine_sandbox.run(statements text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE statements;
END
$$;

-- The texts of a table's helpers as it is now.
CREATE FUNCTION pytest_dsql_engine_sandbox.described(relation oid, schema text, name text) RETURNS pytest_dsql_engine_sandbox.helper
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  h pytest_dsql_engine_sandbox.helper;
  columns text[];
  generated text[];
  defined text;
  defaults text;
  events text;
  stage text := format('%I.%I', pytest_dsql_engine_sandbox.stage_schema(schema::name), name);
  written text := format('%I.%I', pytest_dsql_engine_sandbox.written_schema(schema::name), name);
BEGIN
  SELECT array_agg(a.attname ORDER BY attnum),
    COALESCE(array_agg(a.attname ORDER BY attnum) FILTER (WHERE attgenerated <> ''), '{}'),
    string_agg(format('%I %s%s%s', a.attname, format_type(atttypid, atttypmod),
      CASE WHEN attgenerated <> '' THEN format(' GENERATED ALWAYS AS (%s) STORED', pg_get_expr(d.adbin, relation)) END,
      CASE WHEN attnotnull THEN ' NOT NULL' END), ', ' ORDER BY attnum),
    string_agg(CASE
      WHEN attidentity <> '' THEN format('ALTER %I SET DEFAULT pytest_dsql_engine_sandbox.next_value(%s)', a.attname,
        (SELECT objid FROM pg_depend WHERE refclassid = 'pg_class'::regclass AND refobjid = relation AND refobjsubid = attnum
         AND classid = 'pg_class'::regclass AND deptype = 'i'))
      WHEN attgenerated = '' AND d.adbin IS NOT NULL THEN format('ALTER %I SET DEFAULT %s', a.attname, pg_get_expr(d.adbin, relation))
      END, ', ' ORDER BY attnum)
  INTO columns, generated, defined, defaults
  FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON adrelid = attrelid AND adnum = attnum
  WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped;
  h.relid := relation;
  h.place := format('%I.%I', schema, name);
  h.view_name := format('%I.%I', pytest_dsql_engine_sandbox.view_schema(schema::name), name);
  h.overlay_name := format('%I.%I', pytest_dsql_engine_sandbox.overlay_schema(schema::name), name);
  h.overlay_text := format('CREATE UNLOGGED TABLE %s (%s) WITH (autovacuum_enabled = off);', h.overlay_name, concat_ws(', ', defined, (
      SELECT string_agg(format('CONSTRAINT %I %s', conname, pg_get_constraintdef(oid)), ', ' ORDER BY conname)
      FROM pg_constraint WHERE conrelid = relation AND contype = 'c')))
    -- What is written here counts for the limits of transactions as if it were written there.
    || CASE WHEN to_regproc('pytest_dsql_engine_limits.insert_' || relation) IS NOT NULL THEN format(
      E'\nCREATE TRIGGER pytest_dsql_engine AFTER INSERT ON %s FOR EACH ROW EXECUTE FUNCTION pytest_dsql_engine_limits.insert_%s();',
      h.overlay_name, relation) ELSE '' END
    || COALESCE((SELECT string_agg(DISTINCT format(E'\nCREATE INDEX ON %s (%s);', h.overlay_name, keys), '') FROM (
      SELECT array_to_string(ARRAY(SELECT CASE WHEN u.columns IS NULL THEN '(' || e || ')' ELSE e END FROM unnest(u.expressions) AS e), ', ')
      FROM pytest_dsql_engine_sandbox.unique_indexes(relation) AS u
      UNION SELECT pytest_dsql_engine_sandbox.each('{c}', f.columns, ', ') FROM pytest_dsql_engine_sandbox.foreign_keys(relation, false) AS f) AS i(keys)), '');
  events := pytest_dsql_engine_sandbox.events_function(relation, schema, name, columns, h.overlay_name);
  h.functions := concat(
    pytest_dsql_engine_sandbox.write_function(relation, schema, name, columns, generated, h.overlay_name), events,
    pytest_dsql_engine_sandbox.rowset_functions(relation, h.overlay_name),
    pytest_dsql_engine_sandbox.reporting(relation, schema, name, h.overlay_name));
  h.neighbours := ARRAY(
    SELECT confrelid FROM pg_constraint WHERE conrelid = relation AND contype = 'f' AND confrelid <> relation
    UNION SELECT conrelid FROM pg_constraint WHERE confrelid = relation AND contype = 'f' AND conrelid <> relation ORDER BY 1);
  h.keys := (SELECT jsonb_object_agg(u.index, pytest_dsql_engine_sandbox.key_of(u.index, '{row}', u.columns))
    FROM pytest_dsql_engine_sandbox.unique_indexes(relation) AS u WHERE u.columns IS NOT NULL AND u.predicate IS NULL);
  h.indexes := ARRAY(SELECT indexrelid FROM pytest_dsql_engine_index WHERE indrelid = relation AND indisunique ORDER BY 1);
  -- What is gone is asked for outside of the union: PostgreSQL looks up joined rows by indexes only if nothing is inside.
  h.view_text := pytest_dsql_engine_sandbox.fill($t$CREATE VIEW {view} AS SELECT {seen} FROM (
  SELECT b.ctid AS pytest_dsql_engine{own} FROM {table} AS b UNION ALL SELECT NULL::pg_catalog.tid{overlaid} FROM {overlay} AS o
) AS u WHERE u.pytest_dsql_engine IS NULL
  OR NOT EXISTS (SELECT FROM pytest_dsql_engine_sandbox.gone AS g WHERE g.relid = {relid} AND g.id = u.pytest_dsql_engine);
{defaults}
CREATE TRIGGER pytest_dsql_engine INSTEAD OF INSERT OR UPDATE OR DELETE ON {view}
FOR EACH ROW EXECUTE FUNCTION pytest_dsql_engine_sandbox.write_{relid}();
{after}{stage}$t$,
    'stage', CASE WHEN h.keys IS NOT NULL THEN pytest_dsql_engine_sandbox.fill($t$
CREATE VIEW {stage} AS SELECT {overlaid} FROM {overlay} AS o;
{defaults}
CREATE TRIGGER pytest_dsql_engine INSTEAD OF INSERT ON {stage} FOR EACH ROW EXECUTE FUNCTION pytest_dsql_engine_sandbox.write_{relid}('proposal');
CREATE VIEW {written} AS SELECT {overlaid}, o.ctid AS pytest_dsql_engine FROM {overlay} AS o;
{defaults of written}
GRANT SELECT, INSERT, DELETE ON {written} TO PUBLIC;$t$, -- a transaction finds its own rows there, and no others
      'relid', relation::text, 'written', written,
      'defaults of written', CASE WHEN defaults IS NOT NULL THEN format('ALTER VIEW %s %s;', written, defaults) END,
      'stage', stage, 'overlay', h.overlay_name, 'overlaid', pytest_dsql_engine_sandbox.each('o.{c}', columns, ', '),
      'defaults', CASE WHEN defaults IS NOT NULL THEN format('ALTER VIEW %s %s;', stage, defaults) END) END,
    'view', h.view_name, 'table', h.place, 'overlay', h.overlay_name, 'relid', relation::text,
    'seen', pytest_dsql_engine_sandbox.each('u.{c}', columns, ', '),
    'own', pytest_dsql_engine_sandbox.each(', b.{c}', columns, ''), 'overlaid', pytest_dsql_engine_sandbox.each(', o.{c}', columns, ''),
    'defaults', CASE WHEN defaults IS NOT NULL THEN format('ALTER VIEW %s %s;', h.view_name, defaults) END,
    -- Also where there is no foreign key: one may come later, and a view in use can't be made anew.
    'after', format('CREATE TRIGGER pytest_dsql_engine_after AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH STATEMENT'
      ' EXECUTE FUNCTION pytest_dsql_engine_sandbox.after_statement();', h.view_name));
  RETURN h;
END
$$;

-- An identity column's next value; like PostgreSQL itself, whoever may insert may have it.
CREATE FUNCTION pytest_dsql_engine_sandbox.next_value(sequence oid) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER AS $$ SELECT pg_catalog.nextval(sequence::pg_catalog.regclass) $$;

-- With a view or an overlay go the views on it.
CREATE FUNCTION pytest_dsql_engine_sandbox.remove(h pytest_dsql_engine_sandbox.helper) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE concat('DROP VIEW IF EXISTS ', h.view_name, ' CASCADE; DROP TABLE IF EXISTS ' || h.overlay_name || ' CASCADE');
  DELETE FROM pytest_dsql_engine_sandbox.helper WHERE relid = h.relid OR to_regclass(view_name) IS NULL;
END
$$;

-- Internal triggers are shown nowhere.
CREATE FUNCTION pytest_dsql_engine_sandbox.hide_triggers(relations oid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE pytest_dsql_engine_trigger SET tgisinternal = true
  WHERE tgrelid = ANY (relations) AND starts_with(tgname::text, 'pytest_dsql_engine') AND NOT tgisinternal;
END
$$;

CREATE FUNCTION pytest_dsql_engine_sandbox.make_schemas(schema text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF to_regnamespace(pytest_dsql_engine_sandbox.view_schema(schema::name)::text) IS NULL THEN
    EXECUTE format('CREATE SCHEMA %1$I; CREATE SCHEMA %2$I; CREATE SCHEMA %3$I; CREATE SCHEMA %4$I;'
      'GRANT USAGE ON SCHEMA %1$I, %3$I, %4$I TO PUBLIC',
      pytest_dsql_engine_sandbox.view_schema(schema::name), pytest_dsql_engine_sandbox.overlay_schema(schema::name),
      pytest_dsql_engine_sandbox.stage_schema(schema::name), pytest_dsql_engine_sandbox.written_schema(schema::name));
  END IF;
END
$$;

-- Makes the helpers of a client's table what they have to be.
CREATE FUNCTION pytest_dsql_engine_sandbox.renew_table(relation oid) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  schema text;
  name text;
  present pytest_dsql_engine_sandbox.helper;
  wanted pytest_dsql_engine_sandbox.helper;
  stage regclass;
  written regclass;
BEGIN
  SELECT nspname, relname INTO schema, name FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
  WHERE c.oid = relation AND relkind = 'r' AND pytest_dsql_engine_sandbox.is_clients(nspname);
  IF NOT FOUND THEN
    RETURN;
  END IF;
  SELECT * INTO present FROM pytest_dsql_engine_sandbox.helper WHERE relid = relation;
  wanted := pytest_dsql_engine_sandbox.described(relation, schema, name);
  IF present IS NOT DISTINCT FROM wanted THEN
    RETURN;
  END IF;
  IF present.relid IS NOT NULL AND (present.overlay_text, present.view_text) IS DISTINCT FROM (wanted.overlay_text, wanted.view_text) THEN
    PERFORM pytest_dsql_engine_sandbox.remove(present);
  END IF;
  IF to_regclass(wanted.view_name) IS NULL THEN
    PERFORM pytest_dsql_engine_sandbox.make_schemas(schema);
    EXECUTE wanted.overlay_text;
    EXECUTE wanted.functions;
    EXECUTE wanted.view_text;
  ELSIF present.functions IS DISTINCT FROM wanted.functions THEN
    EXECUTE wanted.functions;
  END IF;
  stage := to_regclass(format('%I.%I', pytest_dsql_engine_sandbox.stage_schema(schema::name), name));
  written := to_regclass(format('%I.%I', pytest_dsql_engine_sandbox.written_schema(schema::name), name));
  PERFORM pytest_dsql_engine_sandbox.detach(ARRAY[wanted.view_name::regclass, wanted.overlay_name::regclass, stage, written]);
  PERFORM pytest_dsql_engine_sandbox.hide_triggers(ARRAY[wanted.view_name::regclass, wanted.overlay_name::regclass, stage]);
  PERFORM pytest_dsql_engine_sandbox.copy_privileges(relation, wanted.view_name::regclass);
  PERFORM pytest_dsql_engine_sandbox.copy_privileges(relation, stage);
  INSERT INTO pytest_dsql_engine_sandbox.helper SELECT wanted.*
  ON CONFLICT (relid) DO UPDATE SET (place, view_name, overlay_name, overlay_text, view_text, functions, neighbours, indexes, keys)
    = ROW(excluded.place, excluded.view_name, excluded.overlay_name, excluded.overlay_text, excluded.view_text, excluded.functions,
      excluded.neighbours, excluded.indexes, excluded.keys);
END
$$;

