-- What the replicas of a server share and no client may know: the key that seals what clients carry, for one.
CREATE TABLE secret (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
