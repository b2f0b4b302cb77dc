import { milliseconds, type Duration } from "../clock.ts";

/** Who made a request, as its client names itself. */
export interface HostInfo {
  readonly name: string;
  readonly version: string;
}

/** How long a call waits, in milliseconds. */
export interface Limits {
  /** For a client that gets the task when this is over. */
  readonly graceMs: number;
  /** For a client that knows of no tasks. */
  readonly holdMs: number;
}

/** What is different for one host. */
export interface HostRule {
  /** The client's name as it gives it itself, in whatever case. */
  readonly name: string;
  /** The beginning of the versions that are meant, `"1."` say. Default: all. */
  readonly version?: string;
  readonly grace?: Duration;
  readonly hold?: Duration;
}

/** How long calls wait. */
export interface HoldOptions {
  /** How long a client that declared the extension may wait for a plain result, before it gets the task. Default `"200ms"`; 0 turns it off. */
  readonly grace?: Duration;
  /** How long a call of any other client is held before it is asked to come back, or gets a handle. Default `"25s"`. */
  readonly hold?: Duration;
  /** What is different for single hosts. They go before what is known of hosts here. */
  readonly hosts?: readonly HostRule[];
}

/** The limits for each client. Throws a `RangeError` for what is no duration. */
export function limitsFor(options: HoldOptions): (host: HostInfo | undefined) => Limits {
  const limits = { graceMs: milliseconds(options.grace ?? "200ms"), holdMs: milliseconds(options.hold ?? "25s") };
  const rules = [...(options.hosts ?? [])].map(({ name, version = "", grace, hold }) => ({
    name: name.toLowerCase(),
    version,
    ...(grace === undefined ? {} : { graceMs: milliseconds(grace) }),
    ...(hold === undefined ? {} : { holdMs: milliseconds(hold) }),
  }));
  return (host) => {
    if (host === undefined) return limits;
    const name = host.name.toLowerCase();
    const found = rules.find((rule) => rule.name === name && host.version.startsWith(rule.version));
    return { graceMs: found?.graceMs ?? limits.graceMs, holdMs: found?.holdMs ?? limits.holdMs };
  };
}
