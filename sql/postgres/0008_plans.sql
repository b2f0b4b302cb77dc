-- A verb finds by index whatever it needs. Functions keep their plans, and the planner, asked while a table is small or was
-- just emptied, would walk it from then on, also when it has grown: the walk through all tasks by each claim took a third
-- of its time after 2,500 tasks, until the next ANALYZE. So no function of the schema may plan such walks or join by them.
DO $$
DECLARE
  verb regprocedure;
BEGIN
  FOR verb IN
    SELECT pg_proc.oid FROM pg_proc
    JOIN pg_language ON pg_language.oid = prolang
    JOIN pg_namespace ON pg_namespace.oid = pronamespace
    WHERE lanname = 'plpgsql' AND nspname = current_schema() AND proconfig IS NOT NULL
  LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', verb);
    EXECUTE format('ALTER FUNCTION %s SET enable_hashjoin = off', verb);
    EXECUTE format('ALTER FUNCTION %s SET enable_mergejoin = off', verb);
  END LOOP;
END $$;
