-- The functions behind a table's view.

-- The statements that refuse a row whose key another row has.
CREATE FUNCTION pytest_dsql_engine_sandbox.unique_checks(relation oid, schema text, name text, columns text[]) RETURNS text
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  i record;
  checks text := '';
  message text;
  written text := (
    SELECT '(SELECT ' || pytest_dsql_engine_sandbox.each('NEW.{c} AS {c}', columns, ', ') || ') AS ' || quote_ident(name));
  keys text[];
BEGIN
  FOR i IN SELECT * FROM pytest_dsql_engine_sandbox.unique_indexes(relation) AS u ORDER BY u.index LOOP
    message := format('duplicate key value violates unique constraint "%s"', i.name);
    IF i.columns IS NOT NULL AND i.predicate IS NULL THEN
      checks := checks || pytest_dsql_engine_sandbox.fill($t$
    IF TG_OP = 'INSERT' OR ROW({new}) IS DISTINCT FROM ROW({old}) THEN
      IF (SELECT pg_catalog.count(*) FROM ({rows} LIMIT 2) AS found) > 1 THEN
        {raise}
      END IF;
    END IF;$t$,
        'new', pytest_dsql_engine_sandbox.each('NEW.{c}', i.columns, ', '),
        'old', pytest_dsql_engine_sandbox.each('OLD.{c}', i.columns, ', '),
        'rows', pytest_dsql_engine_sandbox.matching(relation, i.columns, 'NEW', i.columns, i.distinct_nulls),
        'raise', pytest_dsql_engine_sandbox.raising('unique_violation', message, pytest_dsql_engine_sandbox.detail(
          i.described, (SELECT array_agg('NEW.' || quote_ident(c)) FROM unnest(i.columns) AS c), ' already exists.'),
          schema, name, i.name));
    ELSE
      keys := (SELECT array_agg('k' || n) FROM generate_series(1, cardinality(i.expressions)) AS n);
      checks := checks || pytest_dsql_engine_sandbox.fill($t$
    SELECT {detail} INTO shown FROM (SELECT {keys} FROM {written} WHERE {predicate}) AS n
    WHERE (SELECT pg_catalog.count(*) FROM (
      SELECT FROM (SELECT {keys} FROM {view} AS {name} WHERE {predicate}) AS v WHERE {same} LIMIT 2) AS found) > 1;
    IF FOUND THEN
      {raise}
    END IF;$t$,
        'keys', (SELECT string_agg(format('%s AS k%s', e, n), ', ' ORDER BY n) FROM unnest(i.expressions) WITH ORDINALITY AS each(e, n)),
        'written', written, 'predicate', COALESCE(i.predicate, 'true'), 'name', quote_ident(name),
        'view', format('%I.%I', pytest_dsql_engine_sandbox.view_schema(schema::name), name),
        'same', pytest_dsql_engine_sandbox.each(CASE WHEN i.distinct_nulls THEN 'v.{c} OPERATOR(pg_catalog.=) n.{c}'
          ELSE 'v.{c} IS NOT DISTINCT FROM n.{c}' END, keys, ' AND '),
        'detail', pytest_dsql_engine_sandbox.detail(i.described, (SELECT array_agg('n.' || k) FROM unnest(keys) AS k), ' already exists.'),
        'raise', pytest_dsql_engine_sandbox.raising('unique_violation', message, 'shown', schema, name, i.name));
    END IF;
  END LOOP;
  RETURN checks;
END
$$;

-- The function of the trigger that writes the overlay in place of the table. Its plans are made while the helpers are
-- empty, and kept while they grow: so they have to go by the indexes, and without bitmaps, which cost more for a row and
-- don't notice what earlier sandboxes left behind; and none is made for one row's values only.
CREATE FUNCTION pytest_dsql_engine_sandbox.write_function(
  relation oid, schema text, name text, columns text[], generated text[], overlay_name text
) RETURNS text LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  key text[] := (SELECT u.columns FROM pytest_dsql_engine_sandbox.unique_indexes(relation) AS u WHERE u.identifies LIMIT 1);
  image text := 'pg_catalog.record_image_eq(ROW(' || pytest_dsql_engine_sandbox.each('{x}.{c}', columns, ', ') || '), ROW('
    || pytest_dsql_engine_sandbox.each('OLD.{c}', columns, ', ') || '))';
  same text := COALESCE(NULLIF(pytest_dsql_engine_sandbox.each('{x}.{c} OPERATOR(pg_catalog.=) OLD.{c}', key, ' AND '), ''), image);
  stored text[] := (SELECT array_agg(c ORDER BY n) FROM unnest(columns) WITH ORDINALITY AS each(c, n) WHERE c <> ALL (generated));
  events text := '';
  children text;
  parents text;
BEGIN
  -- A condition without a query in it is found out much faster: so it stands alone, before the query.
  SELECT string_agg(pytest_dsql_engine_sandbox.fill($t$
    IF (TG_OP = 'INSERT' OR ROW({new}) IS DISTINCT FROM ROW({old})) AND ({given}) THEN
      orphan := orphan OR NOT EXISTS ({parents});
    END IF;$t$,
    'new', pytest_dsql_engine_sandbox.each('NEW.{c}', f.columns, ', '), 'old', pytest_dsql_engine_sandbox.each('OLD.{c}', f.columns, ', '),
    'given', pytest_dsql_engine_sandbox.each('NEW.{c} IS NOT NULL', f.columns, CASE (f.con).confmatchtype WHEN 'f' THEN ' OR ' ELSE ' AND ' END),
    'parents', pytest_dsql_engine_sandbox.matching((f.con).confrelid, f.parent_columns, 'NEW', f.columns)), '')
  INTO children FROM pytest_dsql_engine_sandbox.foreign_keys(relation, false) AS f;
  SELECT string_agg(format('ROW(%s) IS DISTINCT FROM ROW(%s)', pytest_dsql_engine_sandbox.each('NEW.{c}', f.parent_columns, ', '),
    pytest_dsql_engine_sandbox.each('OLD.{c}', f.parent_columns, ', ')), ' OR ')
  INTO parents FROM pytest_dsql_engine_sandbox.foreign_keys(relation, true) AS f;
  IF children IS NOT NULL OR parents IS NOT NULL THEN
    events := pytest_dsql_engine_sandbox.fill($t$
  IF TG_OP <> 'DELETE' THEN{children}
    NULL;
  END IF;
  IF orphan OR {parents} THEN
    INSERT INTO pytest_dsql_engine_sandbox.event (relid, was, now, child) VALUES ({relid},
      CASE WHEN TG_OP <> 'INSERT' THEN ROW({old})::pg_catalog.text END,
      CASE WHEN TG_OP <> 'DELETE' THEN ROW({new})::pg_catalog.text END, orphan);
    PERFORM pg_catalog.set_config_by_name('pytest_dsql_engine.happened', 'on', true);
  END IF;$t$,
      'children', children, 'relid', relation::text,
      'parents', CASE WHEN parents IS NULL THEN 'false' ELSE format('TG_OP = ''DELETE'' OR (TG_OP = ''UPDATE'' AND (%s))', parents) END,
      'old', pytest_dsql_engine_sandbox.each('OLD.{c}', columns, ', '), 'new', pytest_dsql_engine_sandbox.each('NEW.{c}', columns, ', '));
  END IF;
  RETURN pytest_dsql_engine_sandbox.fill($t$CREATE OR REPLACE FUNCTION pytest_dsql_engine_sandbox.write_{relid}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan AS $pytest_dsql_engine$
#variable_conflict use_column
DECLARE
  spot pg_catalog.tid;
  shown pg_catalog.text;
  orphan pg_catalog.bool := false;
BEGIN
  IF TG_NARGS > 0 THEN
    -- A proposal: it has to be a row that the table could hold, and its generated values are asked for.
    PERFORM pytest_dsql_engine_limits.pause();
    INSERT INTO {overlay} ({stored}) VALUES ({values}) RETURNING ctid INTO spot;
    PERFORM pytest_dsql_engine_limits.go_on();
    SELECT o.* INTO NEW FROM {overlay} AS o WHERE o.ctid OPERATOR(pg_catalog.=) spot;
    DELETE FROM {overlay} AS o WHERE o.ctid OPERATOR(pg_catalog.=) spot;
    RETURN NEW;
  END IF;
  IF TG_OP <> 'INSERT' THEN
    INSERT INTO pytest_dsql_engine_sandbox.gone (relid, id) SELECT {relid}, b.ctid FROM {table} AS b
    WHERE {based} AND (SELECT true FROM pytest_dsql_engine_sandbox.gone AS g WHERE g.relid OPERATOR(pg_catalog.=) {relid}
      AND g.id OPERATOR(pg_catalog.=) b.ctid) IS NULL LIMIT 1;
    IF NOT FOUND THEN
      DELETE FROM {overlay} WHERE ctid OPERATOR(pg_catalog.=) (SELECT o.ctid FROM {overlay} AS o WHERE {overlaid} LIMIT 1);
      IF NOT FOUND THEN
        RETURN NULL; -- this statement has written it already
      END IF;
    END IF;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO {overlay} ({stored}) VALUES ({values}){returning};{checks}
  END IF;{events}
  IF TG_OP = 'DELETE' THEN
    PERFORM pytest_dsql_engine_limits.count_row();
    RETURN OLD;
  END IF;
  RETURN NEW;
END
$pytest_dsql_engine$;
$t$,
    'relid', relation::text, 'overlay', overlay_name, 'table', format('%I.%I', schema, name),
    'overlaid', replace(CASE WHEN key IS NULL THEN same ELSE same || ' AND ' || image END, '{x}', 'o'),
    'based', replace(same, '{x}', 'b'),
    'stored', pytest_dsql_engine_sandbox.each('{c}', stored, ', '), 'values', pytest_dsql_engine_sandbox.each('NEW.{c}', stored, ', '),
    'returning', CASE WHEN generated <> '{}' THEN ' RETURNING * INTO NEW' END,
    'checks', pytest_dsql_engine_sandbox.unique_checks(relation, schema, name, columns), 'events', events);
END
$$;

-- The condition under which a constraint is checked now.
CREATE FUNCTION pytest_dsql_engine_sandbox.due(con pg_constraint) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN CASE WHEN con.condeferrable THEN format('pytest_dsql_engine_sandbox.is_immediate(%L, %L) AND ', con.conname, NOT con.condeferred)
    ELSE '' END;
END
$$;

-- What follows, by one foreign key, from a row `was` of its parent having become `now`, or gone.
CREATE FUNCTION pytest_dsql_engine_sandbox.parent_action(f record, action "char", schema text, done text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  con pg_constraint := f.con;
  set_columns text[] := f.columns;
  refusal text;
  same text := pytest_dsql_engine_sandbox.each('c.{c} OPERATOR(pg_catalog.=) was.{d}', f.columns, ' AND ', f.parent_columns);
BEGIN
  IF done = 'delete' AND con.confdelsetcols IS NOT NULL THEN
    set_columns := pytest_dsql_engine_sandbox.column_names(con.conrelid, con.confdelsetcols);
  END IF;
  refusal := pytest_dsql_engine_sandbox.fill($t$IF {due}{unreplaced}EXISTS ({children}) THEN
          {raise}
        END IF;$t$,
    'due', CASE WHEN action = 'a' THEN pytest_dsql_engine_sandbox.due(con) END,
    'unreplaced', CASE WHEN action <> 'r' THEN format('NOT EXISTS (%s) AND ',
      pytest_dsql_engine_sandbox.matching(con.confrelid, f.parent_columns, 'was', f.parent_columns)) END,
    'children', pytest_dsql_engine_sandbox.matching(con.conrelid, f.columns, 'was', f.parent_columns),
    'raise', pytest_dsql_engine_sandbox.raising('foreign_key_violation',
      format('update or delete on table "%s" violates foreign key constraint "%s" on table "%s"', f.parent_name, con.conname, f.child_name),
      pytest_dsql_engine_sandbox.detail(array_to_string(f.parent_columns, ', '),
        (SELECT array_agg('was.' || quote_ident(c)) FROM unnest(f.parent_columns) AS c),
        format(' is still referenced from table "%s".', f.child_name)),
      schema, f.child_name, con.conname));
  RETURN CASE
    WHEN action = 'c' AND done = 'delete' THEN format('DELETE FROM %s AS c WHERE %s;', f.other_view, same)
    WHEN action = 'c' THEN format('UPDATE %s AS c SET %s WHERE %s;', f.other_view,
      pytest_dsql_engine_sandbox.each('{c} = now.{d}', f.columns, ', ', f.parent_columns), same)
    WHEN action IN ('n', 'd') THEN format('UPDATE %s AS c SET %s WHERE %s; ', f.other_view,
      pytest_dsql_engine_sandbox.each('{c} = ' || CASE action WHEN 'n' THEN 'NULL' ELSE 'DEFAULT' END, set_columns, ', '), same)
      -- The default may be the key that is gone: then nothing has changed, and is referenced still.
      || CASE action WHEN 'd' THEN refusal ELSE '' END
    ELSE refusal
  END;
END
$$;

-- The function that looks at what has happened to a table's rows, as far as foreign keys are concerned; null: none are.
CREATE FUNCTION pytest_dsql_engine_sandbox.events_function(relation oid, schema text, name text, columns text[], overlay_name text)
RETURNS text LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  f record;
  checks text := '';
  actions text := '';
  followed text := '';
BEGIN
  FOR f IN SELECT * FROM pytest_dsql_engine_sandbox.foreign_keys(relation, false) LOOP
    checks := checks || pytest_dsql_engine_sandbox.fill($t$
      IF {due}(e.was IS NULL OR ROW({now}) IS DISTINCT FROM ROW({was})) AND ({given}) AND NOT EXISTS ({parents}) THEN
        {mixed}
        {raise}
      END IF;$t$,
      'due', pytest_dsql_engine_sandbox.due(f.con),
      'now', pytest_dsql_engine_sandbox.each('now.{c}', f.columns, ', '), 'was', pytest_dsql_engine_sandbox.each('was.{c}', f.columns, ', '),
      'given', pytest_dsql_engine_sandbox.each('now.{c} IS NOT NULL', f.columns, CASE (f.con).confmatchtype WHEN 'f' THEN ' OR ' ELSE ' AND ' END),
      'parents', pytest_dsql_engine_sandbox.matching((f.con).confrelid, f.parent_columns, 'now', f.columns),
      'mixed', CASE WHEN (f.con).confmatchtype = 'f' THEN format('IF %s THEN %s END IF;',
        pytest_dsql_engine_sandbox.each('now.{c} IS NULL', f.columns, ' OR '),
        pytest_dsql_engine_sandbox.raising('foreign_key_violation',
          format('insert or update on table "%s" violates foreign key constraint "%s"', f.child_name, (f.con).conname),
          quote_literal('MATCH FULL does not allow mixing of null and nonnull key values.'), schema, name, (f.con).conname)) END,
      'raise', pytest_dsql_engine_sandbox.raising('foreign_key_violation',
        format('insert or update on table "%s" violates foreign key constraint "%s"', f.child_name, (f.con).conname),
        pytest_dsql_engine_sandbox.detail(array_to_string(f.columns, ', '),
          (SELECT array_agg('now.' || quote_ident(c)) FROM unnest(f.columns) AS c),
          format(' is not present in table "%s".', f.parent_name)), schema, name, (f.con).conname));
  END LOOP;
  FOR f IN SELECT k.*, n.nspname::text AS child_schema FROM pytest_dsql_engine_sandbox.foreign_keys(relation, true) AS k
    JOIN pg_class AS c ON c.oid = (k.con).conrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
  LOOP
    actions := actions || pytest_dsql_engine_sandbox.fill($t$
      IF {given} THEN
        IF e.now IS NULL THEN
        {deleted}
        ELSIF ROW({now}) IS DISTINCT FROM ROW({was}) THEN
        {updated}
        END IF;
      END IF;$t$,
      'given', pytest_dsql_engine_sandbox.each('was.{c} IS NOT NULL', f.parent_columns, ' AND '),
      'now', pytest_dsql_engine_sandbox.each('now.{c}', f.parent_columns, ', '), 'was', pytest_dsql_engine_sandbox.each('was.{c}', f.parent_columns, ', '),
      'deleted', pytest_dsql_engine_sandbox.parent_action(f, (f.con).confdeltype, f.child_schema, 'delete'),
      'updated', pytest_dsql_engine_sandbox.parent_action(f, (f.con).confupdtype, f.child_schema, 'update'));
    followed := followed || pytest_dsql_engine_sandbox.fill($t$ OR ({given}
        AND (e.deleted OR ROW({now}) IS DISTINCT FROM ROW({was})) AND EXISTS ({children}))$t$,
      'given', pytest_dsql_engine_sandbox.each('(e.was).{c} IS NOT NULL', f.parent_columns, ' AND '),
      'now', pytest_dsql_engine_sandbox.each('(e.now).{c}', f.parent_columns, ', '),
      'was', pytest_dsql_engine_sandbox.each('(e.was).{c}', f.parent_columns, ', '),
      'children', pytest_dsql_engine_sandbox.matching((f.con).conrelid, f.columns, '(e.was)', f.parent_columns));
  END LOOP;
  IF checks = '' AND actions = '' THEN
    RETURN NULL;
  END IF;
  RETURN pytest_dsql_engine_sandbox.fill($t$CREATE OR REPLACE FUNCTION pytest_dsql_engine_sandbox.events_{relid}(seen pg_catalog.int8, until pg_catalog.int8) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan AS $pytest_dsql_engine$
#variable_conflict use_column
DECLARE
  e record;
  was {overlay};
  now {overlay};
BEGIN
  -- Mostly nothing follows from any of them, and all at once that is found out fast.
  IF NOT EXISTS (SELECT FROM (
    SELECT t.child, t.now IS NULL AS deleted, t.was::{overlay} AS was, t.now::{overlay} AS now FROM pytest_dsql_engine_sandbox.event AS t
    WHERE t.n OPERATOR(pg_catalog.>) seen AND t.n OPERATOR(pg_catalog.<) until AND t.relid OPERATOR(pg_catalog.=) {relid} OFFSET 0
  ) AS e WHERE e.child{followed}) THEN
    RETURN;
  END IF;
  FOR e IN
    SELECT t.was, t.now, t.child FROM pytest_dsql_engine_sandbox.event AS t
    WHERE t.n OPERATOR(pg_catalog.>) seen AND t.n OPERATOR(pg_catalog.<) until AND t.relid OPERATOR(pg_catalog.=) {relid} ORDER BY t.n
  LOOP
    was := e.was::{overlay};
    now := e.now::{overlay};
    IF e.child AND EXISTS (SELECT FROM {overlay} AS o WHERE {same}) THEN{checks}
      NULL;
    END IF;
    IF e.was IS NOT NULL THEN{actions}
      NULL;
    END IF;
  END LOOP;
END
$pytest_dsql_engine$;
$t$,
    'relid', relation::text, 'overlay', overlay_name, 'checks', checks, 'actions', actions, 'followed', followed,
    'same', format('pg_catalog.record_image_eq(ROW(%s), ROW(%s))', pytest_dsql_engine_sandbox.each('o.{c}', columns, ', '),
      pytest_dsql_engine_sandbox.each('now.{c}', columns, ', ')));
END
$$;
