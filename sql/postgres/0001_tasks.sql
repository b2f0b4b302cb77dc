-- Tasks and all that belongs to them, in a schema of their own. JSON is text, stored as it was given: jsonb would refuse
-- \u0000 and reorder keys. Instants are milliseconds since the Unix epoch, by the database's clock. Names that a program
-- chose (owner, tool, key and so on) are encoded where Postgres could not hold them: see src/store/postgres/rows.ts.
-- They compare byte by byte, whatever the database's locale.

CREATE TABLE task (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order of creation
  id text COLLATE "C" NOT NULL UNIQUE,
  owner text COLLATE "C" NOT NULL,
  tool text COLLATE "C" NOT NULL,
  version text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  priority integer NOT NULL,
  status text COLLATE "C" NOT NULL
    CHECK (status IN ('working', 'input_required', 'completed', 'failed', 'cancelled')),
  status_message text,
  progress text,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  turned_at bigint NOT NULL,
  timeout_ms bigint,
  keep_ms bigint,
  deadline bigint, -- null without a timeout, and once the task has ended
  finished_at bigint,
  purge_at bigint,
  rev bigint NOT NULL,
  epoch bigint NOT NULL,
  attempts integer NOT NULL,
  strikes integer NOT NULL, -- attempts since the last progress
  recovery text NOT NULL CHECK (recovery IN ('retry', 'fail')),
  unwind boolean NOT NULL, -- a cancel resumes a waiting handler
  cancel_requested boolean NOT NULL,
  cancel_by bigint, -- when a running task that was asked to end is ended
  error text CHECK ((error IS NOT NULL) = (status = 'failed')),
  result text CHECK ((result IS NOT NULL) = (status = 'completed'))
-- Room in each page: most updates of a task change no indexed column, and then need no new index entries.
) WITH (fillfactor = 80);

CREATE INDEX task_live_owner ON task (owner) WHERE finished_at IS NULL;
CREATE INDEX task_deadline ON task (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX task_cancel_by ON task (cancel_by) WHERE cancel_by IS NOT NULL;
CREATE INDEX task_purge_at ON task (purge_at, seq) WHERE purge_at IS NOT NULL;

-- What nobody can do by accident, in any version of the code.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a finished task never changes';
END $$;

CREATE TRIGGER task_frozen BEFORE UPDATE ON task FOR EACH ROW
WHEN (OLD.finished_at IS NOT NULL) EXECUTE FUNCTION refuse_change();

-- The call that started a task. Apart from it, for it is only read to run the task.
CREATE TABLE call (
  task bigint PRIMARY KEY REFERENCES task ON DELETE CASCADE,
  client text NOT NULL,
  auth text NOT NULL,
  answers text NOT NULL,
  args text NOT NULL
);

-- The ticket to run a task: at most one each. The next columns repeat the task's, for the indices; `place` is its seq
-- under a name that no other index has: in search of a lane's oldest task the planner would walk the primary key, past
-- all that is running.
CREATE TABLE activation (
  task bigint PRIMARY KEY REFERENCES task ON DELETE CASCADE,
  place bigint NOT NULL,
  queue text COLLATE "C" NOT NULL,
  tool text COLLATE "C" NOT NULL,
  version text COLLATE "C" NOT NULL,
  priority integer NOT NULL,
  owner text COLLATE "C" NOT NULL,
  state text COLLATE "C" NOT NULL CHECK (state IN ('ready', 'delayed', 'leased')),
  due bigint NOT NULL,
  lease_until bigint CHECK ((lease_until IS NOT NULL) = (state = 'leased')),
  epoch bigint CHECK ((epoch IS NOT NULL) = (state = 'leased')),
  holder text CHECK ((holder IS NOT NULL) = (state = 'leased'))
);

CREATE INDEX activation_ready ON activation (queue, tool, version, priority, owner, place) WHERE state = 'ready';
CREATE INDEX activation_delayed ON activation (due) WHERE state = 'delayed';
CREATE INDEX activation_lease ON activation (lease_until) WHERE state = 'leased';
CREATE INDEX activation_running_owner ON activation (owner) WHERE state = 'leased';
CREATE INDEX activation_running_tool ON activation (tool) WHERE state = 'leased';

-- Whose turn it is. A lane is one owner's ready activations of one kind; who is served goes to the end of the line,
-- and so does who comes new. Empty lanes are dropped when there are many.
CREATE TABLE lane (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue text COLLATE "C" NOT NULL,
  tool text COLLATE "C" NOT NULL,
  version text COLLATE "C" NOT NULL,
  priority integer NOT NULL,
  owner text COLLATE "C" NOT NULL,
  turn bigint NOT NULL,
  UNIQUE (owner, queue, tool, version, priority)
);

CREATE INDEX lane_next ON lane (queue, tool, version, priority DESC, turn);
CREATE INDEX lane_turn ON lane (turn);

CREATE TABLE step (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  key text COLLATE "C" NOT NULL,
  state text COLLATE "C" NOT NULL CHECK (state IN ('started', 'done', 'failed')),
  wake_at bigint,
  value text CHECK ((value IS NULL) = (state = 'started')),
  UNIQUE (task, key)
);

CREATE TABLE input (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order of asking
  task bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  key text COLLATE "C" NOT NULL,
  open boolean NOT NULL, -- the task waits for it
  request text NOT NULL,
  response text CHECK (response IS NULL OR NOT open),
  UNIQUE (task, key)
);

CREATE TABLE event (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  key text COLLATE "C" NOT NULL,
  awaited boolean NOT NULL,
  value text,
  UNIQUE (task, key)
);

-- Purged tasks, remembered for a while so that the answer can say "expired".
CREATE TABLE tombstone (
  id text COLLATE "C" PRIMARY KEY,
  owner text COLLATE "C" NOT NULL,
  until bigint NOT NULL
);

CREATE INDEX tombstone_until ON tombstone (until);

-- A task as the code reads it: with the questions it waits on, so that one statement sees one moment.
CREATE VIEW seen AS
SELECT
  seq,
  id,
  owner,
  tool,
  version,
  status,
  status_message AS "statusMessage",
  progress,
  created_at AS "createdAt",
  updated_at AS "updatedAt",
  turned_at AS "turnedAt",
  timeout_ms AS "timeoutMs",
  keep_ms AS "keepMs",
  deadline,
  finished_at AS "finishedAt",
  purge_at AS "purgeAt",
  rev,
  epoch,
  strikes,
  cancel_requested AS "cancelRequested",
  error,
  result,
  (
    SELECT CASE WHEN state = 'leased' THEN 'leased' ELSE 'queued' END
    FROM activation
    WHERE activation.task = task.seq
  ) AS activation,
  CASE
    WHEN status = 'input_required' THEN (
      SELECT json_agg(json_build_array(input.key, input.request) ORDER BY input.id)::text
      FROM input
      WHERE input.task = task.seq AND input.open
    )
  END AS asks
FROM task;

-- What is recorded of a task, in the order of recording.
CREATE VIEW journal AS
SELECT
  seq,
  (
    SELECT json_agg(json_build_array(key, state, value, wake_at) ORDER BY step.id)::text
    FROM step
    WHERE step.task = seq
  ) AS steps,
  (
    SELECT json_agg(json_build_array(key, request, response) ORDER BY input.id)::text
    FROM input
    WHERE input.task = seq
  ) AS inputs,
  (
    SELECT json_agg(json_build_array(key, value) ORDER BY event.id)::text
    FROM event
    WHERE event.task = seq AND value IS NOT NULL
  ) AS events
FROM task;

-- A task with all that is needed to run it.
CREATE VIEW work AS
SELECT seen.*, call.client, call.auth, call.answers, call.args, journal.steps, journal.inputs, journal.events
FROM seen JOIN call ON call.task = seen.seq JOIN journal ON journal.seq = seen.seq;
