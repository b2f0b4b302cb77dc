import type { FetchLike } from "@modelcontextprotocol/client";
import { TaskError } from "../errors.ts";

/** A `Retry-After` header in milliseconds: seconds, or a date (RFC 9110, 10.2.3). */
export function retryAfter(header: string | null, now: number): number | undefined {
  if (header === null) return undefined;
  if (/^\d+$/.test(header.trim())) return Number(header) * 1_000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}

/**
 * A `fetch` for `StreamableHTTPClientTransport` that tells a {@link TaskClient} how long a busy server asks it to
 * wait, which the transport's own errors don't. `TaskClient.connect(url)` uses it by itself.
 */
export function patientFetch(inner: FetchLike = fetch): FetchLike {
  return async (url, init) => {
    const response = await inner(url, init);
    const method = new Headers(init?.headers).get("mcp-method") ?? "";
    if (response.ok || !(method === "tools/call" || method.startsWith("tasks/"))) return response;
    const retryAfterMs = retryAfter(response.headers.get("retry-after"), Date.now());
    if (retryAfterMs === undefined) return response;
    await response.body?.cancel();
    const { status } = response;
    throw new TaskError("REFUSED", { detail: `The HTTP status is ${status}.`, data: { status, retryAfterMs } });
  };
}
