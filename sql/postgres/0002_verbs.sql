-- The port's verbs, a function each: one round trip, and a transaction that begins and ends on the server, so that no
-- process that is frozen or cut off holds a lock. A verb first locks its task's row and only then looks, by statements of
-- their own, which see what was committed until that moment. Whatever belongs to a task is changed under that lock.
-- Claims and sweeps touch many tasks: they take turns by an advisory lock, so that two of them never wait for each other.
-- Each verb's first argument is the instant that counts as now, or null for the database's own clock.

CREATE FUNCTION instant_of(given bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(given, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- Whole milliseconds that JavaScript can hold; a length of zero or less is none.
CREATE FUNCTION later(now bigint, in_ms double precision) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN in_ms > 0 THEN least(ceil(now + in_ms), 9007199254740991)::bigint ELSE now END
$$;

-- A lock of this schema: others in the same database have theirs.
CREATE FUNCTION lock_of(what text) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT hashtextextended(what, 'task'::regclass::oid::bigint)
$$;

-- The moves that verbs are made of.

-- Makes a visible change. A clock that went back doesn't take updated_at with it.
CREATE FUNCTION reveal(t task, now bigint, new_status text, message text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE task SET
    status = new_status,
    status_message = message,
    rev = rev + 1,
    updated_at = greatest(updated_at, now),
    turned_at = CASE WHEN status = new_status THEN turned_at ELSE greatest(updated_at, now) END
  WHERE seq = t.seq;
END $$;

-- Ends a task, by its own attempt or over its head; then the epoch rises, and whoever still runs it is fenced.
CREATE FUNCTION end_task(t task, now bigint, outcome text, message text, payload text, by_store boolean)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM activation WHERE activation.task = t.seq;
  UPDATE task SET
    status = outcome,
    status_message = coalesce(message, status_message),
    result = CASE WHEN outcome = 'completed' THEN payload END,
    error = CASE WHEN outcome = 'failed' THEN payload END,
    rev = rev + 1,
    epoch = epoch + CASE WHEN by_store THEN 1 ELSE 0 END,
    updated_at = greatest(updated_at, now),
    turned_at = greatest(updated_at, now),
    finished_at = greatest(updated_at, now),
    purge_at = least(greatest(updated_at, now) + keep_ms::numeric, 9007199254740991)::bigint,
    deadline = NULL,
    cancel_by = NULL
  WHERE seq = t.seq;
END $$;

-- A lane is locked against its drop until the activation in it can be seen. The lock is a shared one.
CREATE FUNCTION enter_lane(t task) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    PERFORM FROM lane
    WHERE owner = t.owner AND queue = t.queue AND tool = t.tool AND version = t.version AND priority = t.priority
    FOR KEY SHARE;
    EXIT WHEN FOUND;
    -- An owner has one place in the line, whatever kinds of task they have.
    INSERT INTO lane (queue, tool, version, priority, owner, turn)
    VALUES (t.queue, t.tool, t.version, t.priority, t.owner, coalesce(
      (SELECT lane.turn FROM lane WHERE lane.owner = t.owner LIMIT 1),
      (SELECT max(lane.turn) + 1 FROM lane),
      1))
    ON CONFLICT DO NOTHING;
  END LOOP;
END $$;

-- Queues a task's activation, for now or for an instant.
CREATE FUNCTION enqueue(t task, now bigint, due_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  next_state text := CASE WHEN due_at > now THEN 'delayed' ELSE 'ready' END;
BEGIN
  INSERT INTO activation (task, place, queue, tool, version, priority, owner, state, due)
  VALUES (t.seq, t.seq, t.queue, t.tool, t.version, t.priority, t.owner, next_state,
    CASE WHEN due_at > now THEN due_at ELSE 0 END)
  ON CONFLICT (task) DO UPDATE
  SET state = excluded.state, due = excluded.due, lease_until = NULL, epoch = NULL, holder = NULL;
  IF next_state = 'ready' THEN PERFORM enter_lane(t); END IF;
END $$;

-- Puts a task whose attempt is over back in the queue, or, while it waits for input, where answers find it.
CREATE FUNCTION requeue(t task, now bigint, due_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF t.status = 'input_required' THEN DELETE FROM activation WHERE activation.task = t.seq;
  ELSE PERFORM enqueue(t, now, due_at);
  END IF;
END $$;

-- The end of a cancelled attempt: of the task too, unless its handler is to see the cancel and has attempts left.
-- True: the task has ended.
CREATE FUNCTION end_or_unwind(t task, now bigint, by_store boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF t.unwind AND t.strikes < t.attempts THEN
    PERFORM enqueue(t, now, 0);
    RETURN false;
  END IF;
  PERFORM end_task(t, now, 'cancelled', NULL, NULL, by_store);
  RETURN true;
END $$;

-- The fence: a worker's verb finds its task only while it holds the lease under the task's latest epoch. Null: it is lost.
CREATE FUNCTION held(attempt_id text, attempt_epoch bigint) RETURNS task LANGUAGE plpgsql AS $$
DECLARE
  t task;
BEGIN
  SELECT * INTO t FROM task WHERE id = attempt_id AND epoch = attempt_epoch FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  PERFORM FROM activation WHERE task = t.seq AND state = 'leased';
  IF NOT FOUND THEN RETURN NULL; END IF;
  RETURN t;
END $$;

CREATE FUNCTION set_timer(task_seq bigint, timer_key text, at bigint, now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  -- A timer that still runs keeps its instant; one that rang is set anew, and a step that ended takes none.
  INSERT INTO step (task, key, state, wake_at) VALUES (task_seq, timer_key, 'started', at)
  ON CONFLICT (task, key) DO UPDATE SET wake_at = excluded.wake_at
  WHERE step.state = 'started' AND (step.wake_at IS NULL OR step.wake_at <= now);
END $$;

-- Ends a task whose time or attempts are used up, so that nobody runs it for nothing. True: it was so.
CREATE FUNCTION end_if_over(t task, now bigint, failures text[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF t.deadline <= now THEN PERFORM end_task(t, now, 'failed', failures[2], failures[1], true);
  ELSIF t.strikes >= t.attempts THEN PERFORM exhaust(t, now, failures, true);
  ELSE RETURN false;
  END IF;
  RETURN true;
END $$;

-- The verbs of any replica.

-- The task; no row: the owner has as many unfinished ones as they may.
CREATE FUNCTION create_task(
  given bigint, task_id text, task_owner text, task_tool text, task_version text, task_queue text,
  task_priority integer, task_timeout_ms bigint, task_keep_ms bigint, task_attempts integer, task_recovery text,
  task_unwind boolean, task_client text, task_auth text, task_answers text, task_args text, live_limit bigint
) RETURNS SETOF seen LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  now bigint := instant_of(given);
  t task;
  others bigint := current_setting('max_connections')::bigint;
BEGIN
  IF live_limit IS NOT NULL THEN
    -- Only near the limit do creates of one owner take turns: further off, all that may be under way fit below it.
    IF (SELECT count(*) FROM (
      SELECT FROM task WHERE owner = task_owner AND finished_at IS NULL LIMIT greatest(live_limit - others, 0)) AS live
    ) >= live_limit - others THEN
      PERFORM pg_advisory_xact_lock(lock_of('owner ' || task_owner));
      IF (SELECT count(*) FROM (
        SELECT FROM task WHERE owner = task_owner AND finished_at IS NULL LIMIT live_limit) AS live
      ) >= live_limit THEN RETURN; END IF;
    END IF;
  END IF;
  INSERT INTO task (id, owner, tool, version, queue, priority, status, created_at, updated_at, turned_at,
    timeout_ms, keep_ms, deadline, rev, epoch, attempts, strikes, recovery, unwind, cancel_requested)
  VALUES (task_id, task_owner, task_tool, task_version, task_queue, task_priority, 'working', now, now, now,
    task_timeout_ms, task_keep_ms, CASE WHEN task_timeout_ms IS NOT NULL THEN later(now, task_timeout_ms) END,
    1, 0, task_attempts, 0, task_recovery, task_unwind, false)
  RETURNING * INTO t;
  INSERT INTO call (task, client, auth, answers, args) VALUES (t.seq, task_client, task_auth, task_answers, task_args);
  PERFORM enqueue(t, now, 0);
  RETURN QUERY SELECT * FROM seen WHERE seq = t.seq;
END $$;

-- The task as it is now; a row with no more than the status 'expired' stands for one that is gone, none for an unknown
-- one. Unknown and foreign ids take the same way.
CREATE FUNCTION find_task(now bigint, task_id text, task_owner text) RETURNS SETOF seen
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  found_task seen;
BEGIN
  SELECT * INTO found_task FROM seen WHERE id = task_id AND owner = task_owner;
  IF NOT FOUND AND NOT EXISTS (SELECT FROM tombstone WHERE id = task_id AND owner = task_owner) THEN RETURN; END IF;
  IF found_task.seq IS NULL OR found_task."purgeAt" <= instant_of(now) THEN
    found_task := NULL;
    found_task.status := 'expired';
  END IF;
  RETURN NEXT found_task;
END $$;

CREATE FUNCTION answer(
  given bigint, task_id text, task_owner text, answer_keys text[], answer_responses text[], refused text
) RETURNS SETOF seen LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  now bigint;
  t task;
  stored bigint;
BEGIN
  SELECT * INTO t FROM task WHERE id = task_id AND owner = task_owner AND status = 'input_required'
  FOR NO KEY UPDATE;
  now := instant_of(given);
  IF t.seq IS NOT NULL THEN
    UPDATE input SET response = given_one.response, open = false
    FROM unnest(answer_keys, answer_responses) AS given_one (key, response)
    WHERE input.task = t.seq AND input.key = given_one.key AND input.open;
    GET DIAGNOSTICS stored = ROW_COUNT;
    IF NOT EXISTS (SELECT FROM input WHERE task = t.seq AND open) THEN
      -- Someone who holds the task in memory goes on with it; otherwise it is queued.
      IF NOT EXISTS (SELECT FROM activation WHERE task = t.seq) THEN PERFORM enqueue(t, now, 0); END IF;
      PERFORM reveal(t, now, 'working', NULL);
    ELSIF stored > 0 OR refused IS NOT NULL THEN
      PERFORM reveal(t, now, t.status, coalesce(refused, t.status_message));
    END IF;
    RETURN QUERY SELECT * FROM seen WHERE seq = t.seq;
  ELSE RETURN QUERY SELECT * FROM find_task(given, task_id, task_owner);
  END IF;
END $$;

CREATE FUNCTION send(given bigint, task_id text, event_key text, event_value text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  t task;
  was_awaited boolean;
BEGIN
  SELECT * INTO t FROM task WHERE id = task_id AND finished_at IS NULL FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  INSERT INTO event (task, key, awaited, value) VALUES (t.seq, event_key, false, event_value)
  ON CONFLICT (task, key) DO UPDATE SET value = excluded.value WHERE event.value IS NULL
  RETURNING awaited INTO was_awaited;
  IF was_awaited AND t.status = 'working' AND NOT EXISTS (
    SELECT FROM activation WHERE task = t.seq AND state <> 'delayed'
  ) THEN PERFORM enqueue(t, instant_of(given), 0);
  END IF;
  RETURN true;
END $$;

CREATE FUNCTION request_cancel(given bigint, task_id text, task_owner text, grace_ms double precision)
RETURNS SETOF seen LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  now bigint;
  t task;
BEGIN
  SELECT * INTO t FROM task
  WHERE id = task_id AND owner = task_owner AND finished_at IS NULL AND NOT cancel_requested
  FOR NO KEY UPDATE;
  now := instant_of(given);
  IF t.seq IS NOT NULL THEN
    UPDATE task SET cancel_requested = true WHERE seq = t.seq;
    IF EXISTS (SELECT FROM activation WHERE task = t.seq AND state = 'leased' AND lease_until > now) THEN
      UPDATE task SET cancel_by = later(now, grace_ms) WHERE seq = t.seq;
      PERFORM reveal(t, now, t.status, t.status_message);
    ELSIF t.unwind AND t.epoch > 0 THEN
      UPDATE task SET cancel_by = later(now, grace_ms) WHERE seq = t.seq;
      UPDATE input SET open = false WHERE task = t.seq AND open;
      PERFORM enqueue(t, now, 0);
      PERFORM reveal(t, now, 'working', t.status_message);
    ELSE PERFORM end_task(t, now, 'cancelled', NULL, NULL, true);
    END IF;
    RETURN QUERY SELECT * FROM seen WHERE seq = t.seq;
  ELSE RETURN QUERY SELECT * FROM find_task(given, task_id, task_owner);
  END IF;
END $$;

-- The verbs of an attempt. Each one passes the fence first, and changes nothing if the lease is lost.

-- Touches activations alone, which know their epoch. One that another verb has just locked is about to lose its lease:
-- waiting for it could make two of them wait for each other.
CREATE FUNCTION renew(given bigint, lease_holder text, ids text[], epochs bigint[], lease_ms double precision)
RETURNS TABLE (id text, epoch bigint, "cancelRequested" boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  until bigint := later(instant_of(given), lease_ms);
  task_seq bigint;
BEGIN
  FOR id, epoch IN SELECT * FROM unnest(ids, epochs) LOOP
    SELECT task.seq, task.cancel_requested INTO task_seq, "cancelRequested"
    FROM task JOIN activation ON activation.task = task.seq
    WHERE task.id = renew.id AND activation.epoch = renew.epoch AND activation.state = 'leased'
      AND activation.holder = lease_holder;
    CONTINUE WHEN NOT FOUND;
    PERFORM FROM activation
    WHERE activation.task = task_seq AND activation.epoch = renew.epoch AND activation.state = 'leased'
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN UPDATE activation SET lease_until = until WHERE activation.task = task_seq; END IF;
    RETURN NEXT;
  END LOOP;
END $$;

CREATE FUNCTION start_step(given bigint, task_id text, task_epoch bigint, step_key text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  t task := held(task_id, task_epoch);
BEGIN
  IF t.seq IS NULL THEN RETURN false; END IF;
  INSERT INTO step (task, key, state) VALUES (t.seq, step_key, 'started') ON CONFLICT DO NOTHING;
  RETURN true;
END $$;

-- How a step ended stays: a verb that is repeated, because its answer got lost, changes nothing. One that failed is no
-- progress: else a tool that is tried again for the same failure would be for ever.
CREATE FUNCTION record_step(
  given bigint, task_id text, task_epoch bigint, step_key text, new_state text, new_value text, wake bigint
) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  t task := held(task_id, task_epoch);
BEGIN
  IF t.seq IS NULL THEN RETURN false; END IF;
  IF new_state = 'started' AND wake IS NOT NULL THEN PERFORM set_timer(t.seq, step_key, wake, instant_of(given));
  ELSE
    INSERT INTO step (task, key, state, value) VALUES (t.seq, step_key, new_state, new_value)
    ON CONFLICT (task, key) DO UPDATE SET state = excluded.state, value = excluded.value, wake_at = NULL
    WHERE step.state = 'started' AND excluded.state <> 'started';
  END IF;
  IF new_state <> 'failed' AND t.strikes > 0 THEN UPDATE task SET strikes = 0 WHERE seq = t.seq; END IF;
  RETURN true;
END $$;

CREATE FUNCTION set_status(given bigint, task_id text, task_epoch bigint, message text, new_progress text)
RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  t task := held(task_id, task_epoch);
BEGIN
  IF t.seq IS NULL THEN RETURN false; END IF;
  IF message IS DISTINCT FROM t.status_message OR new_progress IS DISTINCT FROM t.progress THEN
    UPDATE task SET progress = new_progress WHERE seq = t.seq;
    PERFORM reveal(t, instant_of(given), t.status, message);
  END IF;
  RETURN true;
END $$;

CREATE FUNCTION park(
  given bigint, task_id text, task_epoch bigint, input_keys text[], input_requests text[], event_keys text[],
  timer_keys text[], timer_lengths double precision[], hold boolean
) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  t task := held(task_id, task_epoch);
  now bigint := instant_of(given);
  asked boolean := false;
  due_at bigint; -- when it goes on if it needn't wait for input; null: at an event
  new_status text := 'working';
  one record;
  known text;
BEGIN
  IF t.seq IS NULL THEN RETURN false; END IF;
  IF t.cancel_requested THEN
    PERFORM end_or_unwind(t, now, false);
    RETURN true;
  END IF;
  -- A held attempt tells of its waits as they come, any other of all of them at once.
  IF NOT hold THEN
    UPDATE input SET open = false WHERE task = t.seq AND open;
    UPDATE event SET awaited = false WHERE task = t.seq AND awaited;
  END IF;
  FOR one IN SELECT * FROM unnest(input_keys, input_requests) AS given_one (key, request) LOOP
    INSERT INTO input (task, key, open, request) VALUES (t.seq, one.key, true, one.request)
    ON CONFLICT (task, key) DO UPDATE SET open = true WHERE input.response IS NULL AND NOT input.open;
    IF FOUND THEN asked := true; END IF;
  END LOOP;
  FOR one IN SELECT unnest(event_keys) AS key LOOP
    INSERT INTO event (task, key, awaited) VALUES (t.seq, one.key, true)
    ON CONFLICT (task, key) DO UPDATE SET awaited = true
    RETURNING value INTO known;
    IF known IS NOT NULL THEN due_at := 0; END IF;
  END LOOP;
  FOR one IN SELECT * FROM unnest(timer_keys, timer_lengths) AS given_one (key, length) LOOP
    PERFORM set_timer(t.seq, one.key, later(now, one.length), now);
    -- Without an instant, that step has ended already.
    due_at := least(due_at, (SELECT coalesce(wake_at, 0) FROM step WHERE task = t.seq AND key = one.key));
  END LOOP;
  IF cardinality(input_keys) > 0 OR (cardinality(event_keys) = 0 AND due_at IS NULL) THEN due_at := 0; END IF;
  IF EXISTS (SELECT FROM input WHERE task = t.seq AND open) THEN new_status := 'input_required'; END IF;
  IF NOT hold THEN
    IF new_status = 'input_required' OR due_at IS NULL THEN DELETE FROM activation WHERE activation.task = t.seq;
    ELSE PERFORM enqueue(t, now, due_at);
    END IF;
  END IF;
  IF t.strikes > 0 THEN UPDATE task SET strikes = 0 WHERE seq = t.seq; END IF;
  IF new_status <> t.status OR asked THEN PERFORM reveal(t, now, new_status, t.status_message); END IF;
  RETURN true;
END $$;

CREATE FUNCTION finish(given bigint, task_id text, task_epoch bigint, outcome text, message text, payload text)
RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  t task := held(task_id, task_epoch);
BEGIN
  IF t.seq IS NULL THEN RETURN false; END IF;
  PERFORM end_task(t, instant_of(given), outcome, message, payload, false);
  RETURN true;
END $$;

-- `failures` are the ends that the store makes by itself, error and message each: timed out, interrupted, exhausted.
-- The last two texts name the number of attempts as NaN.
CREATE FUNCTION exhaust(t task, now bigint, failures text[], by_store boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM end_task(t, now, 'failed', replace(failures[6], 'NaN', t.strikes::text),
    replace(failures[5], 'NaN', t.strikes::text), by_store);
END $$;

CREATE FUNCTION release(
  given bigint, task_id text, task_epoch bigint, delay_ms double precision, spend boolean, failures text[]
) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  t task := held(task_id, task_epoch);
  now bigint := instant_of(given);
BEGIN
  IF t.seq IS NULL THEN RETURN false; END IF;
  -- Even an attempt that made progress counts as one when it is to be spent.
  t.strikes := CASE WHEN spend THEN greatest(t.strikes, 1) ELSE greatest(t.strikes - 1, 0) END;
  UPDATE task SET strikes = t.strikes WHERE seq = t.seq;
  IF spend THEN DELETE FROM step WHERE task = t.seq AND state = 'failed'; END IF;
  IF t.cancel_requested THEN PERFORM end_or_unwind(t, now, false);
  -- No sense in a pause before the end.
  ELSIF t.strikes >= t.attempts THEN PERFORM exhaust(t, now, failures, false);
  ELSE PERFORM requeue(t, now, later(now, delay_ms));
  END IF;
  RETURN true;
END $$;

-- Milliseconds until a timer or the end of a lease, or null.
CREATE FUNCTION next_due(given bigint) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  soonest bigint := least(
    (SELECT min(due) FROM activation WHERE state = 'delayed'),
    (SELECT min(lease_until) FROM activation WHERE state = 'leased'));
BEGIN
  RETURN CASE WHEN soonest IS NOT NULL THEN greatest(0, soonest - instant_of(given)) END;
END $$;

-- What touches many tasks.

-- Fails what takes longer than it may; gives the ids.
CREATE FUNCTION time_out(now bigint, most integer, failures text[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  t task;
  ended text[] := '{}';
BEGIN
  FOR t IN SELECT * FROM task WHERE deadline <= now ORDER BY deadline, seq LIMIT most FOR NO KEY UPDATE LOOP
    PERFORM end_task(t, now, 'failed', failures[2], failures[1], true);
    ended := ended || t.id;
  END LOOP;
  RETURN ended;
END $$;

-- Takes back leases that ran out. The attempt was counted when it was claimed.
CREATE FUNCTION recover_lost(now bigint, most integer, failures text[], OUT lost text[], OUT cancelled integer)
LANGUAGE plpgsql AS $$
DECLARE
  candidate bigint;
  t task;
BEGIN
  lost := '{}';
  cancelled := 0;
  FOR candidate IN
    SELECT task FROM activation WHERE state = 'leased' AND lease_until <= now ORDER BY lease_until, task LIMIT most
  LOOP
    SELECT * INTO t FROM task WHERE seq = candidate FOR NO KEY UPDATE;
    -- While this waited for the lock, the lease may have been renewed, or the task handed back.
    PERFORM FROM activation WHERE task = candidate AND state = 'leased' AND lease_until <= now FOR UPDATE;
    CONTINUE WHEN NOT FOUND;
    lost := lost || t.id;
    IF t.cancel_requested THEN
      IF end_or_unwind(t, now, true) THEN cancelled := cancelled + 1; END IF;
    ELSIF t.recovery = 'fail' THEN PERFORM end_task(t, now, 'failed', failures[4], failures[3], true);
    ELSIF NOT end_if_over(t, now, failures) THEN PERFORM requeue(t, now, 0);
    END IF;
  END LOOP;
END $$;

CREATE FUNCTION promote_due(now bigint, most integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  candidate bigint;
  t task;
BEGIN
  FOR candidate IN
    SELECT task FROM activation WHERE state = 'delayed' AND due <= now ORDER BY due, task LIMIT most
  LOOP
    SELECT * INTO t FROM task WHERE seq = candidate FOR NO KEY UPDATE;
    PERFORM FROM activation WHERE task = candidate AND state = 'delayed' AND due <= now;
    IF FOUND THEN PERFORM enqueue(t, now, 0); END IF;
  END LOOP;
END $$;

-- Drops lanes that hold nothing, unless they are just being entered. While lanes are few they stay, for their owners
-- will be back.
CREATE FUNCTION drop_lanes(ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  locked bigint[];
BEGIN
  IF (SELECT count(*) FROM (SELECT FROM lane LIMIT 100) AS first) < 100 THEN RETURN; END IF;
  locked := ARRAY(
    SELECT id FROM lane WHERE id = ANY (ids) AND NOT EXISTS (
      SELECT FROM activation
      WHERE state = 'ready' AND activation.queue = lane.queue AND activation.tool = lane.tool
        AND activation.version = lane.version AND activation.priority = lane.priority
        AND activation.owner = lane.owner)
    FOR UPDATE SKIP LOCKED);
  IF cardinality(locked) = 0 THEN RETURN; END IF;
  -- A statement of its own, which sees what was put there until the lock was had; now nobody can enter any more.
  DELETE FROM lane WHERE id = ANY (locked) AND NOT EXISTS (
    SELECT FROM activation
    WHERE state = 'ready' AND activation.queue = lane.queue AND activation.tool = lane.tool
      AND activation.version = lane.version AND activation.priority = lane.priority
      AND activation.owner = lane.owner);
END $$;

-- First what is over ends and what is due is made ready, then the ready ones are picked from. `changed` are tasks that
-- others may wait for; it may come alone.
CREATE FUNCTION claim(
  given bigint, tool_names text[], tool_versions text[], tool_limits bigint[], queues text[], owner_limit bigint,
  most integer, lease_holder text, lease_ms double precision, batch integer, failures text[]
) RETURNS TABLE (now bigint, changed text[], claimed work) LANGUAGE plpgsql SET search_path FROM CURRENT
-- Planning the search below for each call takes longer than the search.
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  taken bigint[] := '{}';
  entered bigint[] := '{}';
  wanted integer;
  breadth integer;
  found_any boolean;
  more boolean;
  owner_used bigint[];
  tool_used bigint[];
  served text[];
  recovered record;
  one record;
  t task;
BEGIN
  now := instant_of(given);
  -- With nothing to do, nobody waits and nothing is written.
  IF NOT EXISTS (SELECT FROM activation WHERE state = 'ready' AND queue = ANY (queues) AND tool = ANY (tool_names))
    AND NOT EXISTS (SELECT FROM activation WHERE state = 'delayed' AND due <= now)
    AND NOT EXISTS (SELECT FROM activation WHERE state = 'leased' AND lease_until <= now)
    AND NOT EXISTS (SELECT FROM task WHERE deadline <= now)
  THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(lock_of('claim'));
  now := instant_of(given);
  changed := time_out(now, batch, failures);
  SELECT * INTO recovered FROM recover_lost(now, batch, failures);
  changed := changed || recovered.lost;
  PERFORM promote_due(now, batch);
  LOOP
    -- One look is enough, unless it would have to be at very many tasks.
    wanted := least(most - cardinality(taken), 32);
    EXIT WHEN wanted <= 0;
    breadth := CASE WHEN owner_limit IS NULL THEN wanted ELSE wanted * 3 END;
    found_any := false;
    more := false;
    owner_used := '{}';
    tool_used := '{}';
    served := '{}';
    -- For each kind of task that the worker takes, the lanes whose turn it is, past owners who have enough running, and
    -- the oldest tasks of each: owners take turns, and a resumed task goes before newer ones.
    FOR one IN
      WITH kind AS MATERIALIZED (
        SELECT named.tool, named.version, wanted_queue AS queue, CASE WHEN named.most IS NOT NULL THEN named.most - (
          SELECT count(*) FROM activation WHERE state = 'leased' AND activation.tool = named.tool) END AS room
        FROM unnest(tool_names, tool_versions, tool_limits) AS named (tool, version, most)
        CROSS JOIN unnest(queues) AS wanted_queue
      ), line AS MATERIALIZED (
        SELECT next.*, kind.room, count(*) OVER (PARTITION BY next.queue, next.tool, next.version) AS lanes
        FROM kind CROSS JOIN LATERAL (
          SELECT lane.*, CASE WHEN owner_limit IS NOT NULL THEN owner_limit - (
            SELECT count(*) FROM activation WHERE state = 'leased' AND activation.owner = lane.owner) END AS owner_room
          FROM lane
          WHERE lane.queue = kind.queue AND lane.tool = kind.tool AND lane.version = kind.version
            AND EXISTS (
              SELECT FROM activation
              WHERE state = 'ready' AND activation.queue = lane.queue AND activation.tool = lane.tool
                AND activation.version = lane.version AND activation.priority = lane.priority
                AND activation.owner = lane.owner)
            AND (owner_limit IS NULL OR owner_limit > (
              SELECT count(*) FROM activation WHERE state = 'leased' AND activation.owner = lane.owner))
          ORDER BY lane.priority DESC, lane.turn LIMIT breadth
        ) AS next
        WHERE kind.room IS NULL OR kind.room > 0
      )
      SELECT head.task, line.id AS lane, line.owner, line.room, line.owner_room,
        max(line.lanes) OVER () >= breadth AS cut,
        dense_rank() OVER (ORDER BY line.owner) AS owner_no,
        dense_rank() OVER (ORDER BY line.tool) AS tool_no,
        row_number() OVER (PARTITION BY line.priority, line.owner ORDER BY head.task) AS nth
      FROM line CROSS JOIN LATERAL (
        SELECT task FROM activation
        WHERE state = 'ready' AND activation.queue = line.queue AND activation.tool = line.tool
          AND activation.version = line.version AND activation.priority = line.priority
          AND activation.owner = line.owner
        ORDER BY place LIMIT wanted
      ) AS head
      ORDER BY line.priority DESC, nth, line.turn, head.task
    LOOP
      EXIT WHEN wanted = 0;
      more := more OR one.cut;
      CONTINUE WHEN one.owner_room <= coalesce(owner_used[one.owner_no], 0);
      CONTINUE WHEN one.room <= coalesce(tool_used[one.tool_no], 0);
      SELECT * INTO t FROM task WHERE seq = one.task FOR NO KEY UPDATE;
      IF t.deadline <= now OR t.strikes >= t.attempts THEN
        IF end_if_over(t, now, failures) THEN changed := changed || t.id; END IF;
        found_any := true;
        more := true;
        CONTINUE;
      END IF;
      -- While this waited for the lock, the task may have ended.
      UPDATE activation SET state = 'leased', due = 0, epoch = t.epoch + 1, holder = lease_holder,
        lease_until = later(now, lease_ms)
      WHERE task = one.task AND state = 'ready';
      CONTINUE WHEN NOT FOUND;
      UPDATE task SET epoch = t.epoch + 1, strikes = t.strikes + 1 WHERE seq = one.task;
      -- What an earlier attempt waited for must not cut short the pause before a later one.
      IF t.epoch > 0 THEN UPDATE event SET awaited = false WHERE task = one.task AND awaited; END IF;
      taken := taken || one.task;
      owner_used[one.owner_no] := coalesce(owner_used[one.owner_no], 0) + 1;
      tool_used[one.tool_no] := coalesce(tool_used[one.tool_no], 0) + 1;
      served := array_remove(served, one.owner) || one.owner;
      IF one.lane <> ALL (entered) THEN entered := entered || one.lane; END IF;
      wanted := wanted - 1;
      found_any := true;
    END LOOP;
    EXIT WHEN NOT found_any;
    -- Whoever was served goes to the end of the line, unless nobody else is in it.
    UPDATE lane SET turn = last.turn + who.place
    FROM unnest(served) WITH ORDINALITY AS who (owner, place), (SELECT max(lane.turn) AS turn FROM lane) AS last
    WHERE lane.owner = who.owner
      AND EXISTS (SELECT FROM lane AS other WHERE other.owner <> lane.owner AND other.turn >= lane.turn);
    EXIT WHEN NOT more AND wanted > 0;
  END LOOP;
  IF cardinality(entered) > 0 THEN PERFORM drop_lanes(entered); END IF;
  IF cardinality(taken) = 0 THEN RETURN NEXT; END IF;
  RETURN QUERY
    SELECT now, changed, work FROM unnest(taken) WITH ORDINALITY AS pick (seq, nth) JOIN work ON work.seq = pick.seq
    ORDER BY pick.nth;
END $$;

-- One round of what time brings about to unfinished tasks.
CREATE FUNCTION sweep(
  given bigint, batch integer, failures text[],
  OUT changed text[], OUT timed_out integer, OUT cancelled integer, OUT more boolean
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  now bigint := instant_of(given);
  t task;
  recovered record;
BEGIN
  changed := '{}';
  timed_out := 0;
  cancelled := 0;
  more := false;
  IF NOT EXISTS (SELECT FROM activation WHERE state = 'leased' AND lease_until <= now)
    AND NOT EXISTS (SELECT FROM task WHERE deadline <= now)
    AND NOT EXISTS (SELECT FROM task WHERE cancel_by <= now)
  THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(lock_of('claim'));
  now := instant_of(given);
  -- Before the cancelled ones: a task that is both was cut off by its own tool's limit.
  changed := time_out(now, batch, failures);
  timed_out := cardinality(changed);
  FOR t IN SELECT * FROM task WHERE cancel_by <= now ORDER BY cancel_by, seq LIMIT batch FOR NO KEY UPDATE LOOP
    PERFORM end_task(t, now, 'cancelled', NULL, NULL, true);
    changed := changed || t.id;
    cancelled := cancelled + 1;
  END LOOP;
  SELECT * INTO recovered FROM recover_lost(now, batch, failures);
  more := batch IN (timed_out, cancelled, cardinality(recovered.lost));
  changed := changed || recovered.lost;
  cancelled := cancelled + recovered.cancelled;
END $$;

-- Deletes finished tasks that were kept for long enough, remembers their ids for a while, and drops empty lanes. Several
-- replicas may do so at once: each passes over what another one is at. What belongs to a task goes with it, by its foreign keys.
CREATE FUNCTION purge(given bigint, batch integer, shortest_memory bigint, OUT purged text[], OUT more boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  now bigint := instant_of(given);
  forgotten integer;
BEGIN
  WITH over AS (
    SELECT seq FROM task WHERE purge_at <= now ORDER BY purge_at, seq LIMIT batch FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM task USING over WHERE task.seq = over.seq
    RETURNING task.seq, task.id, task.owner, task.keep_ms, task.purge_at
  ), buried AS (
    INSERT INTO tombstone (id, owner, until)
    SELECT id, owner, later(now, greatest(shortest_memory, keep_ms)) FROM gone
    ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, until = excluded.until
  )
  SELECT coalesce(array_agg(id ORDER BY purge_at, seq), '{}') INTO purged FROM gone;
  DELETE FROM tombstone WHERE id IN (
    SELECT id FROM tombstone WHERE until <= now ORDER BY until LIMIT batch FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS forgotten = ROW_COUNT;
  more := batch IN (cardinality(purged), forgotten);
  -- Lanes that a claim has emptied are dropped by it; those that a cancel or a timeout has emptied come to the front.
  IF (SELECT count(*) FROM (SELECT FROM lane LIMIT 100) AS first) = 100 THEN
    PERFORM drop_lanes(ARRAY(SELECT id FROM lane ORDER BY turn LIMIT batch));
  END IF;
END $$;
