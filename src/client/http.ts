import type { FetchLike } from "@modelcontextprotocol/client";
import { TaskError } from "../errors.ts";
import { longFetch } from "./long-fetch.ts";

/** A `Retry-After` header in milliseconds: seconds, or a date (RFC 9110, 10.2.3). */
export function retryAfter(header: string | null, now: number): number | undefined {
  if (header === null) return undefined;
  if (/^\d+$/.test(header.trim())) return Number(header) * 1_000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}

/** Requests whose answer may be a long time coming, without a byte on the way. */
const long = new Set(["subscriptions/listen", "tools/call", "tasks/result"]);

const patient = new WeakSet<FetchLike>();

/**
 * A `fetch` for `StreamableHTTPClientTransport` that tells a {@link TaskClient} how long a busy server asks it to
 * wait, which the transport's own errors don't, and that lets a stream be silent. A `TaskClient` gives it to the SDK's
 * HTTP transport by itself; with a fetch of your own it is yours that decides how long a stream may be silent.
 */
export function patientFetch(inner?: FetchLike): FetchLike {
  if (inner !== undefined && patient.has(inner)) return inner;
  const one: FetchLike = async (url, init) => {
    const method = methodOf(init);
    const response = await (inner ?? (isLong(method, init) ? openLong : fetch))(url, init);
    if (response.ok || !(method === "tools/call" || method.startsWith("tasks/"))) return response;
    const retryAfterMs = retryAfter(response.headers.get("retry-after"), Date.now());
    if (retryAfterMs === undefined) return response;
    await response.body?.cancel();
    const { status } = response;
    throw new TaskError("REFUSED", { detail: `The HTTP status is ${status}.`, data: { status, retryAfterMs } });
  };
  patient.add(one);
  return one;
}

const isLong = (method: string, init: RequestInit | undefined) =>
  long.has(method) || ((init?.method ?? "GET") === "GET" && acceptsEvents(init));

const acceptsEvents = (init: RequestInit | undefined) =>
  new Headers(init?.headers).get("accept")?.includes("text/event-stream") === true;

/** Whoever answers with a redirect has not handled the request; following it, and how far, is for fetch. */
const openLong: FetchLike = async (url, init) => {
  const response = await longFetch(url, init);
  const isElsewhere = response.status >= 300 && response.status < 400 && init?.redirect !== "manual";
  if (!isElsewhere) return response;
  await response.body?.cancel();
  return await fetch(url, init);
};

/** The method that a request is for. Servers before 2026-07-28 are not told it in a header. */
function methodOf(init: RequestInit | undefined): string {
  const told = new Headers(init?.headers).get("mcp-method");
  if (told !== null || typeof init?.body !== "string") return told ?? "";
  return (
    /^\{"jsonrpc":"2\.0",(?:"id":[^,]*,)?"method":"([^"]+)"|^\{"method":"([^"]+)"/
      .exec(init.body)
      ?.slice(1)
      .find(Boolean) ?? ""
  );
}
