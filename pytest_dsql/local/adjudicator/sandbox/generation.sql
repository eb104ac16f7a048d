-- What the texts of a table's helpers are put together from.

-- A template whose {words} are filled in, piece by piece, so that what was filled in is never taken for a template.
CREATE FUNCTION pytest_dsql_engine_sandbox.fill(template text, VARIADIC words text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  filled text := split_part(template, '{', 1);
  piece text;
  place integer;
BEGIN
  FOREACH piece IN ARRAY (string_to_array(template, '{'))[2:] LOOP
    place := array_position(words, split_part(piece, '}', 1));
    filled := filled || COALESCE(words[place + 1], '') || substr(piece, strpos(piece, '}') + 1);
  END LOOP;
  RETURN filled;
END
$$;

-- The template once for each name: {c} is the name, {d} the name of the same number in `others`.
CREATE FUNCTION pytest_dsql_engine_sandbox.each(template text, names text[], glue text, others text[] DEFAULT NULL)
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  listed text := '';
  between text := '';
BEGIN
  FOR n IN 1..COALESCE(cardinality(names), 0) LOOP
    listed := listed || between
      || replace(replace(template, '{d}', COALESCE(quote_ident(others[n]), '')), '{c}', quote_ident(names[n]));
    between := glue;
  END LOOP;
  RETURN listed;
END
$$;

CREATE FUNCTION pytest_dsql_engine_sandbox.column_names(relation oid, numbers smallint[]) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ARRAY(
    SELECT attname::text FROM unnest(numbers) WITH ORDINALITY AS numbered(number, n)
    JOIN pg_attribute ON attrelid = relation AND attnum = number ORDER BY n);
END
$$;

-- A table's unique indexes. `columns` is null for one on expressions.
CREATE FUNCTION pytest_dsql_engine_sandbox.unique_indexes(
  relation oid, OUT index oid, OUT name text, OUT columns text[], OUT expressions text[], OUT described text,
  OUT predicate text, OUT distinct_nulls boolean, OUT identifies boolean
) RETURNS SETOF record LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT i.indexrelid, c.relname::text,
    CASE WHEN i.indexprs IS NULL THEN pytest_dsql_engine_sandbox.column_names(relation, k.numbers) END,
    k.expressions, k.described, pg_get_expr(i.indpred, relation), NOT i.indnullsnotdistinct,
    i.indpred IS NULL AND i.indexprs IS NULL
      AND (SELECT bool_and(attnotnull) FROM pg_attribute WHERE attrelid = relation AND attnum = ANY (k.numbers))
  FROM pytest_dsql_engine_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
  CROSS JOIN LATERAL (
    SELECT array_agg(i.indkey[n] ORDER BY n) AS numbers,
      array_agg(pytest_dsql_engine_get_indexdef(i.indexrelid, n + 1, false) ORDER BY n) AS expressions,
      string_agg(pytest_dsql_engine_get_indexdef(i.indexrelid, n + 1, true), ', ' ORDER BY n) AS described
    FROM generate_series(0, i.indnkeyatts - 1) AS n
  ) AS k
  WHERE i.indrelid = relation AND i.indisunique AND i.indislive
  ORDER BY i.indisprimary DESC, i.indexrelid;
END
$$;

-- A table's foreign keys (`incoming`: those that point to it), in the order in which PostgreSQL looks at them. `full_name`
-- is the other table's.
CREATE FUNCTION pytest_dsql_engine_sandbox.foreign_keys(
  relation oid, incoming boolean, OUT con pg_constraint, OUT columns text[], OUT parent_columns text[],
  OUT child_name text, OUT parent_name text, OUT other_view text
) RETURNS SETOF record LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT c, pytest_dsql_engine_sandbox.column_names(c.conrelid, c.conkey), pytest_dsql_engine_sandbox.column_names(c.confrelid, c.confkey),
    child.relname::text, parent.relname::text,
    format('%I.%I', pytest_dsql_engine_sandbox.view_schema(n.nspname), other.relname)
  FROM pg_constraint AS c
  JOIN pg_class AS child ON child.oid = c.conrelid
  JOIN pg_class AS parent ON parent.oid = c.confrelid
  JOIN pg_class AS other ON other.oid = CASE WHEN incoming THEN c.conrelid ELSE c.confrelid END
  JOIN pg_namespace AS n ON n.oid = other.relnamespace
  WHERE c.contype = 'f' AND CASE WHEN incoming THEN c.confrelid = relation ELSE c.conrelid = relation END
  ORDER BY c.oid;
END
$$;

-- The rows of a table, its own and the overlay's, that have the values of `other` in these columns. Whether a row is gone
-- is asked for each: a join would be planned while nothing is, and be slow when much is.
CREATE FUNCTION pytest_dsql_engine_sandbox.matching(
  relation oid, columns text[], other text, others text[], distinct_nulls boolean DEFAULT true
) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT pytest_dsql_engine_sandbox.fill(
    'SELECT 1 FROM {table} AS b WHERE {of b} AND (SELECT true FROM pytest_dsql_engine_sandbox.gone AS g'
    ' WHERE g.relid OPERATOR(pg_catalog.=) {relid} AND g.id OPERATOR(pg_catalog.=) b.ctid) IS NULL'
    ' UNION ALL SELECT 1 FROM {overlay} AS o WHERE {of o}',
    'table', format('%I.%I', nspname, relname), 'relid', relation::text,
    'overlay', format('%I.%I', pytest_dsql_engine_sandbox.overlay_schema(nspname), relname),
    'of b', pytest_dsql_engine_sandbox.each('b.{c}' || equals, columns, ' AND ', others),
    'of o', pytest_dsql_engine_sandbox.each('o.{c}' || equals, columns, ' AND ', others))
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace,
    LATERAL (SELECT CASE WHEN distinct_nulls THEN ' OPERATOR(pg_catalog.=) ' ELSE ' IS NOT DISTINCT FROM ' END || other || '.{d}') AS e(equals)
  WHERE c.oid = relation);
END
$$;

-- How the values of a column are written in a key: equal where the values are. `value` is an expression of its type.
CREATE FUNCTION pytest_dsql_engine_sandbox.canonical(type oid, value text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  base oid := type;
BEGIN
  WHILE (SELECT typtype = 'd' FROM pg_type WHERE oid = base) LOOP
    base := (SELECT typbasetype FROM pg_type WHERE oid = base);
  END LOOP;
  RETURN format(CASE base
    WHEN 'numeric'::regtype THEN 'pg_catalog.trim_scale((%s)::pg_catalog.numeric)'
    WHEN 'bpchar'::regtype THEN 'pg_catalog.rtrim((%s)::pg_catalog.text)'
    WHEN 'timestamptz'::regtype THEN 'pg_catalog.timezone(''UTC'', (%s)::pg_catalog.timestamptz)'
    -- Adding zero makes one zero of two, and the text of a float would depend on a setting.
    WHEN 'float8'::regtype THEN 'pg_catalog.float8send((%s)::pg_catalog.float8 OPERATOR(pg_catalog.+) 0)'
    WHEN 'float4'::regtype THEN 'pg_catalog.float4send((%s)::pg_catalog.float4 OPERATOR(pg_catalog.+) 0::pg_catalog.float4)'
    ELSE '(%s)::' || format_type(base, NULL)
  END, value);
END
$$;

-- The key of a row in a unique index, as a text: the index and its values; null where the row has none. `columns` are the
-- row's columns in the order of the index's.
CREATE FUNCTION pytest_dsql_engine_sandbox.key_of(index oid, source text, columns text[]) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT format('CASE WHEN %s THEN %L OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_array(%s)::pg_catalog.text END',
    CASE WHEN i.indnullsnotdistinct THEN 'true'
      ELSE pytest_dsql_engine_sandbox.each(source || '.{c} IS NOT NULL', columns, ' AND ') END,
    index || '|',
    (SELECT string_agg(pytest_dsql_engine_sandbox.canonical(atttypid, source || '.' || quote_ident(c)), ', ' ORDER BY n)
     FROM unnest(columns) WITH ORDINALITY AS each(c, n)
     JOIN pg_attribute ON attrelid = i.indrelid AND attnum = i.indkey[n - 1]))
  FROM pytest_dsql_engine_index AS i WHERE i.indexrelid = index);
END
$$;

-- An expression for `Key (a, b)=(1, x)...`: values as PostgreSQL shows them. `values_` are expressions.
CREATE FUNCTION pytest_dsql_engine_sandbox.detail(described text, values_ text[], behind text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT format('pg_catalog.format(%L, %s)',
    replace('Key (' || described || ')', '%', '%%') || '=(' || string_agg('%s', ', ') || ')' || replace(behind, '%', '%%'),
    string_agg(format('CASE WHEN %1$s IS NULL THEN ''null'' ELSE pg_catalog.format(''%%s'', %1$s) END', v), ', ' ORDER BY n))
  FROM unnest(values_) WITH ORDINALITY AS each(v, n));
END
$$;

-- A statement that fails with PostgreSQL's own error. `detail` is an expression.
CREATE FUNCTION pytest_dsql_engine_sandbox.raising(
  state text, message text, detail text, schema text, relation text, constraint_name text
) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT format('RAISE EXCEPTION USING ERRCODE = %L, MESSAGE = %L, DETAIL = %s, SCHEMA = %L, TABLE = %L, CONSTRAINT = %L;',
    state, message, detail, schema, relation, constraint_name));
END
$$;
