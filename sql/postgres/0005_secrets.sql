-- What the replicas of a server share and no client may know: the key that seals what clients carry, for one.
CREATE TABLE secret (
  name text COLLATE "C" PRIMARY KEY,
  value text NOT NULL
);
