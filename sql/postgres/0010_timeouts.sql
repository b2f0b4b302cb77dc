-- How long a wait may take. What ends it is stored where it would have been: an answer, a value, or the text that stands for
-- none in time (src/store/rules.ts); so the first one wins as ever, and a version that knows of no timeouts goes on.

-- The first instant at which one of its waits may be over; it is only set when the task parks, or a wait ends so.
ALTER TABLE task ADD COLUMN wait_until bigint;
-- One has ended so: then whatever comes wakes the task, for its handler may have gone on without the others.
ALTER TABLE task ADD COLUMN late boolean NOT NULL DEFAULT false;
ALTER TABLE input ADD COLUMN until bigint;
ALTER TABLE event ADD COLUMN until bigint;

CREATE INDEX task_wait_until ON task (wait_until) WHERE wait_until IS NOT NULL AND finished_at IS NULL;

CREATE FUNCTION late_response() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '{ "action": "cancel" }' $$;
CREATE FUNCTION late_value() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '' $$;

-- Queues a task for now that waits; not one that somebody is at, or about to be, or that pauses after a failure: only
-- then has a delayed one spent an attempt.
CREATE FUNCTION wake(t task, now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM activation WHERE task = t.seq AND (state <> 'delayed' OR t.strikes > 0)) THEN
    PERFORM enqueue(t, now, 0);
  END IF;
END $$;

-- Ends those waits of a task whose timeout has passed; tells whether there were requests and events among them.
CREATE FUNCTION end_late_of(task_seq bigint, now bigint, OUT inputs boolean, OUT events boolean) LANGUAGE plpgsql AS $$
BEGIN
  UPDATE input SET response = late_response(), open = false WHERE task = task_seq AND open AND until <= now;
  inputs := FOUND;
  UPDATE event SET value = late_value() WHERE task = task_seq AND awaited AND value IS NULL AND until <= now;
  events := FOUND;
  UPDATE task SET
    late = late OR inputs OR events,
    wait_until = least(
      (SELECT min(until) FROM input WHERE task = task_seq AND open),
      (SELECT min(until) FROM event WHERE task = task_seq AND awaited AND value IS NULL))
  WHERE seq = task_seq;
END $$;

-- Ends those waits of a task whose timeout has passed, and wakes it if there were any.
CREATE FUNCTION end_late_at(t task, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  ended record;
BEGIN
  SELECT * INTO ended FROM end_late_of(t.seq, now);
  IF NOT ended.inputs AND NOT ended.events THEN RETURN; END IF;
  PERFORM wake(t, now);
  IF t.status = 'input_required' AND NOT EXISTS (SELECT FROM input WHERE task = t.seq AND open) THEN
    PERFORM reveal(t, now, 'working', NULL);
  ELSIF ended.inputs THEN PERFORM reveal(t, now, t.status, t.status_message);
  END IF;
END $$;

-- Ends waits whose timeout has passed, and wakes their tasks; gives the ids of those that it looked at.
CREATE FUNCTION end_late(now bigint, most integer) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  t task;
  seen_ids text[] := '{}';
BEGIN
  FOR t IN
    SELECT * FROM task WHERE wait_until <= now AND wait_until IS NOT NULL AND finished_at IS NULL
    ORDER BY wait_until, seq LIMIT most FOR NO KEY UPDATE
  LOOP
    seen_ids := seen_ids || t.id;
    PERFORM end_late_at(t, now);
  END LOOP;
  RETURN seen_ids;
END $$;

-- As before, but also while a question is open: its attempt was begun by a timeout, and has more to do.
CREATE OR REPLACE FUNCTION requeue(t task, now bigint, due_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM enqueue(t, now, due_at);
END $$;

-- Queues a cancelled task for its handler to clean up: what it waited for is neither asked any more nor over.
CREATE FUNCTION unwind(t task, now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE input SET open = false WHERE task = t.seq AND open;
  UPDATE event SET awaited = false WHERE task = t.seq AND awaited;
  PERFORM enqueue(t, now, 0);
END $$;

-- As before, but for an attempt that a timeout began while other questions are open.
CREATE OR REPLACE FUNCTION end_or_unwind(t task, now bigint, by_store boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF t.unwind AND t.strikes < t.attempts THEN
    PERFORM unwind(t, now);
    IF t.status = 'input_required' THEN PERFORM reveal(t, now, 'working', t.status_message); END IF;
    RETURN false;
  END IF;
  PERFORM end_task(t, now, 'cancelled', NULL, NULL, by_store);
  RETURN true;
END $$;

-- As before, but an event that is awaited can time out.
CREATE OR REPLACE FUNCTION request_cancel(given bigint, task_id text, task_owner text, grace_ms double precision)
RETURNS SETOF seen LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  now bigint;
  t task;
BEGIN
  SELECT * INTO t FROM task
  WHERE id = task_id AND owner = task_owner AND finished_at IS NULL AND NOT cancel_requested
  FOR NO KEY UPDATE;
  IF t.seq IS NOT NULL THEN
    PERFORM FROM activation WHERE task = t.seq FOR UPDATE;
    now := instant_of(given);
    UPDATE task SET cancel_requested = true WHERE seq = t.seq;
    IF EXISTS (SELECT FROM activation WHERE task = t.seq AND state = 'leased' AND lease_until > now) THEN
      UPDATE task SET cancel_by = later(now, grace_ms) WHERE seq = t.seq;
      PERFORM reveal(t, now, t.status, t.status_message);
    ELSIF t.unwind AND t.epoch > 0 THEN
      UPDATE task SET cancel_by = later(now, grace_ms) WHERE seq = t.seq;
      PERFORM unwind(t, now);
      PERFORM reveal(t, now, 'working', t.status_message);
    ELSE PERFORM end_task(t, now, 'cancelled', NULL, NULL, true);
    END IF;
    RETURN QUERY SELECT * FROM seen WHERE seq = t.seq;
  ELSE RETURN QUERY SELECT * FROM find_task(given, task_id, task_owner);
  END IF;
END $$;

-- As before, but an answer after its request's timeout is none.
CREATE OR REPLACE FUNCTION answer(
  given bigint, task_id text, task_owner text, answer_keys text[], answer_responses text[], refused text
) RETURNS SETOF seen LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  now bigint;
  t task;
  stored bigint;
  ended record;
  moved boolean;
BEGIN
  SELECT * INTO t FROM task WHERE id = task_id AND owner = task_owner AND status = 'input_required'
  FOR NO KEY UPDATE;
  now := instant_of(given);
  IF t.seq IS NOT NULL THEN
    UPDATE input SET response = given_one.response, open = false
    FROM unnest(answer_keys, answer_responses) AS given_one (key, response)
    WHERE input.task = t.seq AND input.key = given_one.key AND input.open AND (until IS NULL OR until > now);
    GET DIAGNOSTICS stored = ROW_COUNT;
    moved := stored > 0;
    IF stored < cardinality(answer_keys)
      AND EXISTS (SELECT FROM input WHERE task = t.seq AND open AND until <= now)
    THEN
      -- One that was not taken may have come too late: then its question is gone when its sender looks.
      SELECT * INTO ended FROM end_late_of(t.seq, now);
      moved := moved OR ended.inputs OR ended.events;
      t.late := t.late OR ended.inputs OR ended.events;
    END IF;
    IF NOT EXISTS (SELECT FROM input WHERE task = t.seq AND open) THEN
      -- Someone who holds the task in memory goes on with it; otherwise it is queued.
      PERFORM wake(t, now);
      PERFORM reveal(t, now, 'working', NULL);
    ELSIF moved OR refused IS NOT NULL THEN
      IF moved AND t.late THEN PERFORM wake(t, now); END IF;
      PERFORM reveal(t, now, t.status, coalesce(refused, t.status_message));
    END IF;
    RETURN QUERY SELECT * FROM seen WHERE seq = t.seq;
  ELSE RETURN QUERY SELECT * FROM find_task(given, task_id, task_owner);
  END IF;
END $$;

-- As before, but a value after the timeout of its wait is not kept.
CREATE OR REPLACE FUNCTION send(given bigint, task_id text, event_key text, event_value text) RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  now bigint;
  t task;
  was_awaited boolean;
BEGIN
  SELECT * INTO t FROM task WHERE id = task_id AND finished_at IS NULL FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  now := instant_of(given);
  INSERT INTO event (task, key, awaited, value) VALUES (t.seq, event_key, false, event_value)
  ON CONFLICT (task, key) DO UPDATE SET value = excluded.value
  WHERE event.value IS NULL AND (event.until IS NULL OR event.until > now)
  RETURNING awaited INTO was_awaited;
  -- One that was not kept may have come too late: then its wait is over by now.
  IF NOT FOUND THEN PERFORM end_late_at(t, now);
  ELSIF was_awaited AND (t.status = 'working' OR t.late) THEN PERFORM wake(t, now);
  END IF;
  RETURN true;
END $$;

-- As before, with a length for each wait that has a timeout, and the request that it counts from.
CREATE FUNCTION park(
  given bigint, task_id text, task_epoch bigint, input_keys text[], input_requests text[],
  input_timeouts double precision[], input_sinces text[], event_keys text[], event_timeouts double precision[],
  timer_keys text[], timer_lengths double precision[], hold boolean
) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  t task := held(task_id, task_epoch);
  now bigint := instant_of(given);
  asked boolean := false;
  due_at bigint; -- when it goes on; null: not by itself
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
  FOR one IN
    SELECT * FROM unnest(input_keys, input_requests, input_timeouts, input_sinces)
      AS given_one (key, request, timeout, since)
  LOOP
    -- The instant that was set first stays.
    INSERT INTO input (task, key, open, request, until) VALUES (t.seq, one.key, true, one.request,
      CASE WHEN one.timeout IS NOT NULL THEN coalesce(
        (SELECT until FROM input WHERE task = t.seq AND key = one.since),
        later(now, one.timeout)) END)
    ON CONFLICT (task, key) DO UPDATE SET open = true, until = coalesce(input.until, excluded.until)
    WHERE input.response IS NULL AND NOT input.open;
    IF FOUND THEN asked := true; END IF;
  END LOOP;
  FOR one IN SELECT * FROM unnest(event_keys, event_timeouts) AS given_one (key, timeout) LOOP
    INSERT INTO event (task, key, awaited, until)
    VALUES (t.seq, one.key, true, CASE WHEN one.timeout IS NOT NULL THEN later(now, one.timeout) END)
    ON CONFLICT (task, key) DO UPDATE SET awaited = true, until = coalesce(event.until, excluded.until)
    RETURNING value INTO known;
    IF known IS NOT NULL THEN due_at := 0; END IF;
  END LOOP;
  FOR one IN SELECT * FROM unnest(timer_keys, timer_lengths) AS given_one (key, length) LOOP
    PERFORM set_timer(t.seq, one.key, later(now, one.length), now);
    -- Without an instant, that step has ended already.
    due_at := least(due_at, (SELECT coalesce(wake_at, 0) FROM step WHERE task = t.seq AND key = one.key));
  END LOOP;
  -- What has a timeout from an earlier attempt keeps it.
  IF t.wait_until IS NOT NULL
    OR EXISTS (SELECT FROM input WHERE task = t.seq AND open AND until IS NOT NULL)
    OR EXISTS (SELECT FROM event WHERE task = t.seq AND awaited AND value IS NULL AND until IS NOT NULL)
  THEN
    SELECT * INTO one FROM end_late_of(t.seq, now);
    t.late := t.late OR one.inputs OR one.events;
    IF one.events THEN due_at := 0; END IF;
  END IF;
  IF NOT EXISTS (SELECT FROM input WHERE task = t.seq AND open) THEN
    IF cardinality(input_keys) > 0 OR (cardinality(event_keys) = 0 AND due_at IS NULL) THEN due_at := 0; END IF;
  ELSE
    new_status := 'input_required';
    IF NOT t.late THEN due_at := NULL;
    ELSIF EXISTS (SELECT FROM input WHERE task = t.seq AND key = ANY (input_keys) AND response IS NOT NULL) THEN
      due_at := 0;
    END IF;
  END IF;
  IF NOT hold THEN
    IF due_at IS NULL THEN DELETE FROM activation WHERE activation.task = t.seq;
    ELSE PERFORM enqueue(t, now, due_at);
    END IF;
  END IF;
  IF t.strikes > 0 THEN UPDATE task SET strikes = 0 WHERE seq = t.seq; END IF;
  IF new_status <> t.status OR asked THEN PERFORM reveal(t, now, new_status, t.status_message); END IF;
  RETURN true;
END $$;

-- Of an older version of the code, which gives no timeouts: those that are set stay.
CREATE OR REPLACE FUNCTION park(
  given bigint, task_id text, task_epoch bigint, input_keys text[], input_requests text[], event_keys text[],
  timer_keys text[], timer_lengths double precision[], hold boolean
) RETURNS boolean LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT park(given, task_id, task_epoch, input_keys, input_requests, '{}', '{}', event_keys, '{}',
    timer_keys, timer_lengths, hold)
$$;

-- As before, and the timeout of a wait, even one that is over.
CREATE OR REPLACE FUNCTION next_due(given bigint) RETURNS bigint LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  soonest bigint := least(
    (SELECT min(due) FROM activation WHERE state = 'delayed'),
    (SELECT min(lease_until) FROM activation WHERE state = 'leased'),
    (SELECT min(wait_until) FROM task WHERE wait_until IS NOT NULL AND finished_at IS NULL));
BEGIN
  RETURN CASE WHEN soonest IS NOT NULL THEN greatest(0, soonest - instant_of(given)) END;
END $$;

-- As before, and ends waits whose timeout has passed.
CREATE OR REPLACE FUNCTION sweep(
  given bigint, batch integer, failures text[],
  OUT changed text[], OUT timed_out integer, OUT cancelled integer, OUT more boolean
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  -- Looked up once: where it were asked in the search, it would be asked of each task.
  now bigint := instant_of(given);
  late text[];
BEGIN
  IF NOT pg_try_advisory_xact_lock(lock_of('sweep')) THEN
    SELECT '{}', 0, 0, false INTO changed, timed_out, cancelled, more;
    RETURN;
  END IF;
  SELECT * INTO changed, timed_out, cancelled, more FROM sweep_batch(given, batch, failures);
  IF EXISTS (
    SELECT FROM task WHERE wait_until <= now AND wait_until IS NOT NULL AND finished_at IS NULL
  ) THEN
    PERFORM pg_advisory_xact_lock(lock_of('claim'));
    late := end_late(instant_of(given), batch);
    changed := changed || late;
    more := more OR cardinality(late) = batch;
  END IF;
END $$;

-- As before, and ends waits whose timeout has passed.
CREATE OR REPLACE FUNCTION claim(
  given bigint, tool_names text[], tool_versions text[], tool_limits bigint[], queues text[], owner_limit bigint,
  most integer, lease_holder text, lease_ms double precision, batch integer, failures text[]
) RETURNS TABLE (now bigint, changed text[], claimed work) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
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
    AND NOT EXISTS (SELECT FROM task WHERE wait_until <= now AND wait_until IS NOT NULL AND finished_at IS NULL)
  THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(lock_of('claim'));
  now := instant_of(given);
  changed := time_out(now, batch, failures);
  SELECT * INTO recovered FROM recover_lost(now, batch, failures);
  changed := changed || recovered.lost;
  IF EXISTS (SELECT FROM task WHERE wait_until <= now AND wait_until IS NOT NULL AND finished_at IS NULL) THEN
    changed := changed || end_late(now, batch);
  END IF;
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
