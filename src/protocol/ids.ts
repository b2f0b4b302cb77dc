import { randomBytes } from "node:crypto";

/** What an id that we made looks like: letters, digits, `-` and `_` only, so that it fits a header unescaped. */
const form = /^[A-Za-z0-9_-]{22}$/;

/** A fresh task id: 128 random bits. */
export function newTaskId(): string {
  return randomBytes(16).toString("base64url");
}

/** Whether a value can be an id of ours at all; whatever can't is unknown without asking the store. */
export function isTaskId(value: unknown): value is string {
  return typeof value === "string" && form.test(value);
}
