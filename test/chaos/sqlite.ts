import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Databases } from "./database.ts";

/** Rounds on files: three workers and a front end on one machine, whose database can't be away. */
export const sqliteDatabases: Databases = {
  async fresh(home) {
    const file = join(home, "tasks.db");
    const nowhere = () => Promise.reject(new Error("a file has no server"));
    return {
      fronts: 1,
      blows: {
        first: ["kill", "freeze", "front", "drain", "freeze", "kill", "freeze", "front", "freeze"],
        odds: { kill: 0.4, freeze: 0.3, front: 0.14, drain: 0.12, all: 0.04 },
      },
      connect: async () => ({ address: file, line: null }),
      async query<R>(text: string) {
        using database = new DatabaseSync(file, { readOnly: true, timeout: 0 });
        return database.prepare(text).all() as R[];
      },
      async checkIntegrity() {
        using database = new DatabaseSync(file);
        const lines = [
          ...database.prepare("PRAGMA integrity_check").all(),
          ...database.prepare("PRAGMA foreign_key_check").all(),
        ];
        return lines.map((line) => String(Object.values(line)[0])).join("; ");
      },
      terminate: nowhere,
      crash: nowhere,
      async [Symbol.asyncDispose]() {},
    };
  },
  async [Symbol.asyncDispose]() {},
};
