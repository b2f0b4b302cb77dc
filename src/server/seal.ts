import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import type { Clock } from "../clock.ts";
import { TaskError } from "../errors.ts";
import { digestOf } from "../protocol/digest.ts";

/** Where a call stands that its client makes again: what its `requestState` holds. */
export interface CallState {
  /** How many times the client was asked to come back. */
  readonly rounds: number;
  /** The task that the call has started, once it has. */
  readonly taskId?: string;
  /** What was answered before there is a task, by key, and the id that the task will have: a state starts one at most. */
  readonly before?: { readonly answers: Readonly<Record<string, unknown>>; readonly taskId: string };
}

/** The call that a state belongs to: it opens on no other. */
export interface Binding {
  readonly owner: string;
  readonly tool: string;
  readonly args: unknown;
}

/** Seals what a client carries from one round of a call to the next (core specification, "Multi Round-Trip Requests"). */
export interface Seal {
  seal(state: CallState, call: Binding): Promise<string>;
  /**
   * Throws `STATE_REFUSED` for whatever was not sealed with this key, for this owner, tool and arguments, in the last
   * day. It doesn't say which of these it was.
   */
  open(text: unknown, call: Binding): Promise<CallState>;
}

/** How long a call may be carried on: a person may have to be asked in between. */
export const stateLifeMs = 24 * 3_600_000;

const version = Buffer.from([1]);
const nonceLength = 12;
const tagLength = 16;

/** A seal whose key comes from `secret`, which is asked once. AES-256-GCM; the call is authenticated along. */
export function createSeal(clock: Clock, secret: () => Promise<string | Uint8Array>): Seal {
  let key: Promise<Uint8Array> | undefined;

  function theKey(): Promise<Uint8Array> {
    key ??= secret().then((given) => new Uint8Array(hkdfSync("sha256", given, "", "mcp-tasks request state", 32)));
    key.catch(() => (key = undefined));
    return key;
  }

  return {
    async seal(state, call) {
      const nonce = randomBytes(nonceLength);
      const cipher = createCipheriv("aes-256-gcm", await theKey(), nonce).setAAD(digest(call));
      const text = JSON.stringify({ ...state, until: clock.now() + stateLifeMs });
      const sealed = Buffer.concat([cipher.update(text), cipher.final()]);
      return Buffer.concat([version, nonce, sealed, cipher.getAuthTag()]).toString("base64url");
    },
    async open(text, call) {
      const opened = unseal(text, await theKey(), digest(call));
      if (opened === null || opened.until <= clock.now()) throw new TaskError("STATE_REFUSED");
      return opened;
    },
  };
}

/** A key to keep, for a seal that is given none. */
export function newSecret(): string {
  return randomBytes(32).toString("base64url");
}

function unseal(text: unknown, key: Uint8Array, aad: Buffer): (CallState & { readonly until: number }) | null {
  const bytes = Buffer.from(typeof text === "string" ? text : "", "base64url");
  // Decoding overlooks what is no base64url: each state has one text only.
  if (bytes.length <= 1 + nonceLength + tagLength || bytes.toString("base64url") !== text) return null;
  if (!bytes.subarray(0, 1).equals(version)) return null;
  const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(1, 1 + nonceLength), {
    authTagLength: tagLength,
  });
  decipher.setAAD(aad).setAuthTag(bytes.subarray(-tagLength));
  try {
    const sealed = bytes.subarray(1 + nonceLength, -tagLength);
    return JSON.parse(`${decipher.update(sealed, undefined, "utf8")}${decipher.final("utf8")}`) as never;
  } catch {
    return null;
  }
}

function digest({ owner, tool, args }: Binding): Buffer {
  return Buffer.from(digestOf([owner, tool, args ?? {}]), "hex");
}
