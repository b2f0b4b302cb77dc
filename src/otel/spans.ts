import {
  context,
  createTraceState,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  type Attributes,
  type Span,
  type SpanContext,
  type Tracer,
} from "@opentelemetry/api";
import { channels, type AttemptEnded, type AttemptStarted, type TaskCreated } from "../channels.ts";
import type { TraceContext } from "../protocol/trace.ts";
import { listen } from "./listen.ts";

/**
 * Spans by the conventions for MCP, GenAI tools and messaging: one of a moment where a task is created, a child of its
 * caller's; one for each attempt. An attempt may come days later: it begins a trace of its own and links to the caller's.
 */
export function traceTasks(tracer: Tracer): () => void {
  const running = new WeakMap<AttemptStarted, Span>();

  function created({ taskId, tool, queue, trace: caller }: TaskCreated): void {
    const attributes = {
      ...about(taskId, tool, "create", "send"),
      "mcp.method.name": "tools/call",
      "messaging.destination.name": queue,
    };
    const parent = caller === null ? context.active() : trace.setSpanContext(ROOT_CONTEXT, remote(caller));
    tracer.startSpan(`create ${tool}`, { kind: SpanKind.PRODUCER, attributes }, parent).end();
  }

  function started(attempt: AttemptStarted): void {
    const { taskId, tool, version, trace: caller } = attempt;
    const attributes = {
      ...about(taskId, tool, "process", "process"),
      "gen_ai.operation.name": "execute_tool",
      "mcp_tasks.tool.version": version,
      "mcp_tasks.attempt": attempt.attempt,
      "mcp_tasks.epoch": attempt.epoch,
    };
    const links = caller === null ? [] : [{ context: remote(caller) }];
    const span = tracer.startSpan(
      `process ${tool}`,
      { kind: SpanKind.CONSUMER, attributes, links, root: true },
      ROOT_CONTEXT,
    );
    running.set(attempt, span);
    // Spans that the handler makes are the attempt's children.
    attempt.around = (run) => context.with(trace.setSpan(ROOT_CONTEXT, span), run);
  }

  function ended({ started: attempt, end }: AttemptEnded): void {
    const span = running.get(attempt);
    if (span === undefined) return;
    span.setAttribute("mcp_tasks.attempt.end", end);
    if (end === "failed" || end === "lost")
      span.setAttribute("error.type", end).setStatus({ code: SpanStatusCode.ERROR });
    span.end();
  }

  const stops = [listen(channels.created, created), listen(channels.started, started), listen(channels.ended, ended)];
  return () => stops.forEach((stop) => stop());
}

function about(taskId: string, tool: string, operation: string, type: string): Attributes {
  return {
    "messaging.system": "mcp_tasks",
    "messaging.operation.name": operation,
    "messaging.operation.type": type,
    "messaging.message.id": taskId,
    "gen_ai.tool.name": tool,
  };
}

/** What {@link TraceContext} holds was checked when it was read. */
function remote({ traceparent, tracestate }: TraceContext): SpanContext {
  const [, traceId = "", spanId = "", flags = "00"] = traceparent.split("-");
  return {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16),
    isRemote: true,
    ...(tracestate === undefined ? {} : { traceState: createTraceState(tracestate) }),
  };
}
