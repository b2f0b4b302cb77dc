import { randomFillSync } from "node:crypto";

/** What an id that we made looks like: letters, digits, `-` and `_` only, so that it fits a header unescaped. */
const form = /^[A-Za-z0-9_-]{22}$/;

const idBytes = 16;

/** Random bytes for the next ids, and where the first unused one is: asking for more takes longer than the rest. */
const pool = Buffer.alloc(64 * idBytes);
let next = pool.byteLength;

/** A fresh task id: 128 random bits. */
export function newTaskId(): string {
  if (next === pool.byteLength) {
    randomFillSync(pool);
    next = 0;
  }
  next += idBytes;
  return pool.toString("base64url", next - idBytes, next);
}

/** Whether a value can be an id of ours at all; whatever can't is unknown without asking the store. */
export function isTaskId(value: unknown): value is string {
  return typeof value === "string" && form.test(value);
}
