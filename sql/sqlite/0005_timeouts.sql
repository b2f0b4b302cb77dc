-- How long a wait may take. What ends it is stored where it would have been: an answer, a value, or the text that stands for
-- none in time (src/store/rules.ts); so the first one wins as ever, and a version that knows of no timeouts goes on.

ALTER TABLE input ADD COLUMN until INTEGER;
ALTER TABLE event ADD COLUMN until INTEGER;

-- The first instant at which one of its waits may be over; it is only set when the task parks, or a wait ends so.
ALTER TABLE task ADD COLUMN wait_until INTEGER;
-- One has ended so: then whatever comes wakes the task, for its handler may have gone on without the others.
ALTER TABLE task ADD COLUMN late INTEGER NOT NULL DEFAULT 0;

CREATE INDEX task_wait_until ON task (wait_until) WHERE wait_until IS NOT NULL AND finished_at IS NULL;
