-- Which task stands for a call that may be made again. The newest task with a key has it: whether it still stands for the
-- key is asked of the task itself. Key and call are digests.

CREATE TABLE reuse (
  owner text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  call text COLLATE "C" NOT NULL,
  task bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  PRIMARY KEY (owner, key)
);

CREATE INDEX reuse_task ON reuse (task);

-- As create_task, for a call that may be made again: the task that stands for its key, or a new one. A row with no more
-- than the status 'mismatch': the key stands for another call. Creates with one key take turns, so that they make one task.
CREATE FUNCTION create_once(
  given bigint, task_id text, task_owner text, task_tool text, task_version text, task_queue text,
  task_priority integer, task_timeout_ms bigint, task_keep_ms bigint, task_attempts integer, task_recovery text,
  task_unwind boolean, task_client text, task_auth text, task_answers text, task_args text, live_limit bigint,
  reuse_key text, reuse_call text, reuse_scope text
) RETURNS SETOF seen LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  now bigint;
  known reuse;
  standing seen;
BEGIN
  PERFORM pg_advisory_xact_lock(lock_of('reuse ' || length(task_owner) || ' ' || task_owner || reuse_key));
  now := instant_of(given);
  SELECT * INTO known FROM reuse WHERE owner = task_owner AND key = reuse_key;
  IF FOUND THEN
    SELECT * INTO standing FROM seen
    WHERE seq = known.task AND CASE reuse_scope
      WHEN 'kept' THEN "purgeAt" IS NULL OR "purgeAt" > now
      ELSE "finishedAt" IS NULL AND NOT "cancelRequested"
    END;
    IF FOUND THEN
      IF known.call <> reuse_call THEN
        standing := NULL;
        standing.status := 'mismatch';
      END IF;
      RETURN NEXT standing;
      RETURN;
    END IF;
  END IF;
  SELECT * INTO standing FROM create_task(
    given, task_id, task_owner, task_tool, task_version, task_queue, task_priority, task_timeout_ms, task_keep_ms,
    task_attempts, task_recovery, task_unwind, task_client, task_auth, task_answers, task_args, live_limit);
  IF NOT FOUND THEN RETURN; END IF;
  INSERT INTO reuse (owner, key, call, task) VALUES (task_owner, reuse_key, reuse_call, standing.seq)
  ON CONFLICT (owner, key) DO UPDATE SET call = excluded.call, task = excluded.task;
  RETURN NEXT standing;
END $$;
