import { createHash } from "node:crypto";
import {
  type Client,
  type FetchLike,
  StreamableHTTPClientTransport,
  type Transport,
} from "@modelcontextprotocol/client";
import { patientFetch } from "./http.ts";

/** Which server a task is on. Holds no credentials: neither a URL's query nor a command's arguments can be read from it. */
export interface ServerIdentity {
  /** Origin and path of the URL, or the command with a digest of its arguments, or what the host calls it. */
  readonly address: string;
  /** The server's own name. Empty where it has told none. */
  readonly name: string;
}

/** Whether tasks of the one are tasks of the other. */
export const isSame = (a: ServerIdentity, b: ServerIdentity) => a.address === b.address && a.name === b.name;

/** What the SDK's own transports know and don't tell. Where a version of theirs differs, this is simply missing. */
interface Inside {
  _url?: unknown;
  _fetch?: FetchLike;
  readonly _serverParams?: { readonly command?: unknown; readonly args?: readonly string[] };
}

/** The server that a client is connected to. `told` is the host's own word for the address, if it has one. */
export function serverOf(client: Client, transport: Transport, told: string | undefined): ServerIdentity {
  return { address: told ?? addressOf(transport), name: client.getServerVersion()?.name ?? "" };
}

function addressOf(transport: Transport): string {
  const { _url: url, _serverParams: spawned } = transport as unknown as Inside;
  if (url instanceof URL) return url.origin + url.pathname;
  if (typeof spawned?.command !== "string") return transport.constructor.name;
  const digest = createHash("sha256").update(JSON.stringify(spawned.args ?? []));
  return `stdio:${spawned.command}#${digest.digest("hex").slice(0, 16)}`;
}

/** Has the SDK's HTTP transport heed `Retry-After` and endure silence, whoever made it. */
export function makePatient(transport: Transport): void {
  if (!(transport instanceof StreamableHTTPClientTransport)) return;
  const inside = transport as unknown as Inside;
  inside._fetch = patientFetch(inside._fetch);
}
