/** The trace of the request that started a task, as W3C Trace Context writes it. */
export interface TraceContext {
  readonly traceparent: string;
  readonly tracestate?: string;
}

/** The version that exists, and whatever later ones begin with; ids of zeros are none. */
const parent = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;
const longestState = 512;

/** The trace context in a request's `_meta` (core specification, "_meta"), or null where there is none that is valid. */
export function readTrace(meta: unknown): TraceContext | null {
  const { traceparent, tracestate } = (meta ?? {}) as { traceparent?: unknown; tracestate?: unknown };
  if (typeof traceparent !== "string" || !parent.test(traceparent)) return null;
  const carried = typeof tracestate === "string" && tracestate !== "" && tracestate.length <= longestState;
  return carried ? { traceparent, tracestate } : { traceparent };
}
