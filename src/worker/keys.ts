import { TaskError } from "../errors.ts";

/** What a key belongs to: two kinds may use the same one. */
export type KeyKind = "step" | "input" | "event";

/** Gives each step and wait of an attempt a key that is unique in the task and the same at every replay. */
export interface Keys {
  /** The key for this use of a name: the name itself, then `name#2`, and so on. Throws `MISUSE` on a clash. */
  take(kind: KeyKind, name: string): string;
  /** Says that the holder of a key has its value; until then the name can't be used again. */
  settle(kind: KeyKind, key: string): void;
}

/** Names used at once can't be told apart at a replay, since their order may differ: they must be distinct. */
export function createKeys(): Keys {
  const uses = new Map<string, number>();
  const taken = new Set<string>();
  const open = new Map<string, string>();
  return {
    take(kind, name) {
      if (name === "" || name.length > 200)
        throw new TaskError("MISUSE", { detail: "A name has 1 to 200 characters." });
      const id = `${kind}:${name}`;
      if (open.has(id)) {
        throw new TaskError("MISUSE", {
          detail: `"${name}" is already under way: names used side by side must differ.`,
        });
      }
      const use = (uses.get(id) ?? 0) + 1;
      const key = use === 1 ? name : `${name}#${use}`;
      if (taken.has(`${kind}:${key}`))
        throw new TaskError("MISUSE", { detail: `Two names come to the same key "${key}".` });
      uses.set(id, use);
      taken.add(`${kind}:${key}`);
      open.set(id, key);
      return key;
    },
    settle(kind, key) {
      for (const [id, held] of open) if (held === key && id.startsWith(`${kind}:`)) open.delete(id);
    },
  };
}

/** What is recorded under a key, which may be called like something that every object has. */
export function lookUp<T>(records: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(records, key) ? records[key] : undefined;
}
