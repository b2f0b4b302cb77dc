import { randomBytes } from "node:crypto";
import { noCapabilities, readCapabilities, type ClientCapabilities } from "../protocol/capabilities.ts";
import { legacyProtocol } from "../protocol/legacy.ts";
import type { HostInfo } from "./hosts.ts";
import { isOlder } from "./older.ts";

/** Where a client of 2025-11-25 names its session (core specification of 2025-11-25, "Session Management"). */
export const sessionHeader = "mcp-session-id";

/** Who opened a session, as it introduced itself. */
export interface Session {
  readonly client: ClientCapabilities;
  readonly host: HostInfo | undefined;
  /** Whether they agreed on a protocol before 2025-11-25, which has no tasks. */
  readonly older: boolean;
}

const form = /^[A-Za-z0-9_-]{22}\.(f?)(u?)(s?)(t?)(r?)(o?)\.([A-Za-z0-9_-]{0,1100})$/;
/** A longer name is left out: the id is a header of each request. */
const longestHost = 200;

/**
 * A session's id, which holds all that there is of the session: what its client declared when it introduced itself. The
 * server keeps nothing, so that any replica serves it, also after a restart. Whoever makes an id up declares something
 * about themselves, as they could have done anyway; who they are is for `authenticate` to say.
 */
export function newSession({ client, host, older }: Session): string {
  const { elicitation, sampling, roots } = client;
  const can = [
    elicitation.form ? "f" : "",
    elicitation.url ? "u" : "",
    sampling.basic ? "s" : "",
    sampling.tools ? "t" : "",
    roots ? "r" : "",
    older ? "o" : "",
  ].join("");
  const named = host === undefined ? "" : JSON.stringify([host.name, host.version]);
  const who = named.length > longestHost ? "" : Buffer.from(named).toString("base64url");
  return `${randomBytes(16).toString("base64url")}.${can}.${who}`;
}

/** The session of an id, or null where it is none of ours. */
export function readSession(id: string): Session | null {
  const found = form.exec(id);
  if (found === null) return null;
  const [, formMode, url, basic, tools, roots, older, who = ""] = found;
  const client = {
    tasks: false,
    elicitation: { form: formMode !== "", url: url !== "" },
    sampling: { basic: basic !== "", tools: tools !== "" },
    roots: roots !== "",
  };
  return { client, host: readHost(who), older: older !== "" };
}

function readHost(who: string): HostInfo | undefined {
  try {
    return hostOf(JSON.parse(Buffer.from(who, "base64url").toString()) as unknown[]);
  } catch {
    return undefined;
  }
}

/** A host whose name and version are such. */
function hostOf([name, version]: readonly unknown[]): HostInfo | undefined {
  return typeof name === "string" && typeof version === "string" ? { name, version } : undefined;
}

/** The session that the params of an `initialize` open. */
export function introducedBy(params: Readonly<Record<string, unknown>>): Session {
  const { name, version } = (params.clientInfo ?? {}) as Readonly<Record<string, unknown>>;
  const older = isOlder(params.protocolVersion);
  const { elicitation, sampling, roots } = readCapabilities(params.capabilities);
  return {
    client: {
      tasks: false,
      // Pages to visit, and tools for a model, came with tasks.
      elicitation: { form: elicitation.form, url: elicitation.url && !older },
      sampling: { basic: sampling.basic, tools: sampling.tools && !older },
      roots,
    },
    host: hostOf([name, version]),
    older,
  };
}

/** A client that names no session. Without a version it is of a time before versions were named ("Protocol Version Header"). */
export function nobody(protocol: string | null): Session {
  return { client: noCapabilities, host: undefined, older: protocol !== legacyProtocol };
}
