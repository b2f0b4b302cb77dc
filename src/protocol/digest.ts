import { createHash } from "node:crypto";
import { canonical } from "./canonical.ts";

/** SHA-256 of JSON, in hexadecimal: the same whatever the order of its names. */
export const digestOf = (json: unknown): string =>
  createHash("sha256")
    .update(canonical(json ?? {}))
    .digest("hex");
