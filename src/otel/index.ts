import { metrics, trace, type MeterProvider, type TracerProvider } from "@opentelemetry/api";
import type { Census } from "../store/store.ts";
import { measure } from "./metrics.ts";
import { traceTasks } from "./spans.ts";

/** What telemetry goes to, and what it looks at. */
export interface InstrumentOptions {
  /** The store to count tasks and queues in, each time that metrics are collected. Give it in one process alone. */
  readonly store?: { census(): Promise<Census> };
  /** By default OpenTelemetry's global one. */
  readonly tracerProvider?: TracerProvider;
  /** By default OpenTelemetry's global one. */
  readonly meterProvider?: MeterProvider;
}

const scope = "mcp-tasks";

/**
 * Turns what mcp-tasks tells in this process into OpenTelemetry spans and metrics, until the object returned is
 * disposed. Names and attributes: `docs/guide/telemetry.md`.
 */
export function instrument(options: InstrumentOptions = {}): Disposable {
  const { store, tracerProvider = trace.getTracerProvider(), meterProvider = metrics.getMeterProvider() } = options;
  const stopSpans = traceTasks(tracerProvider.getTracer(scope));
  const stopMetrics = measure(meterProvider.getMeter(scope), store);
  return {
    [Symbol.dispose]() {
      stopSpans();
      stopMetrics();
    },
  };
}
