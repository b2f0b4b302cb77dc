import { milliseconds, type Duration } from "../clock.ts";

/** Who made a request, as its client names itself. */
export interface HostInfo {
  readonly name: string;
  readonly version: string;
}

/** What a client says of itself, or undefined where that is nothing of use. */
export function readHost(clientInfo: unknown): HostInfo | undefined {
  const { name, version } = (clientInfo ?? {}) as { readonly name?: unknown; readonly version?: unknown };
  return typeof name === "string" ? { name, version: typeof version === "string" ? version : "" } : undefined;
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

/** What is known of a host: how long it waits for an answer. Others are taken for as patient as the official SDK. */
export interface KnownHost {
  /** What its client calls itself. */
  readonly name: string;
  /** After so many milliseconds it gives up a call, as far as is known at the least. */
  readonly limitMs: number;
  /** The day of the report, and where it stands. `docs/reference/hosts.md` says more. */
  readonly asOf: string;
  readonly source: string;
}

/** Reported by others, in public. A hold takes three quarters of the limit: what is on its way takes time, too. */
export const knownHosts: readonly KnownHost[] = [
  // Claude Desktop; later versions were seen to wait for four minutes.
  { name: "claude-ai", limitMs: 60_000, asOf: "2026-02-02", source: "github.com/anthropics/claude-code/issues/22542" },
  // Its desktop app; the one for the terminal waits as long as it is told.
  {
    name: "claude-code",
    limitMs: 60_000,
    asOf: "2026-05-28",
    source: "github.com/anthropics/claude-code/issues/63379",
  },
  {
    name: "codex-mcp-client",
    limitMs: 60_000,
    asOf: "2026-07-31",
    source: "zuplo.com/learn/mcp/compatibility/clients/codex-cli",
  },
  {
    name: "github-copilot-developer",
    limitMs: 60_000,
    asOf: "2026-02-19",
    source: "github.com/github/copilot-cli/issues/1535",
  },
];

/** How long calls wait. */
export interface ReplyOptions {
  /** How long a client that declared the extension may wait for a plain result, before it gets the task. Default `"200ms"`; 0 turns it off. */
  readonly grace?: Duration;
  /** How long a call of any other client is held before it is asked to come back, or gets a handle. Default `"25s"`. */
  readonly hold?: Duration;
  /** What is different for single hosts. They go before what is known of hosts here. */
  readonly hosts?: readonly HostRule[];
}

interface Rule extends Partial<Limits> {
  readonly name: string;
  readonly version: string;
}

const known: readonly Rule[] = knownHosts.map(({ name, limitMs }) => ({
  name,
  version: "",
  holdMs: (limitMs * 3) / 4,
}));

/** The limits for each client, from the first rule that is about it. Throws a `RangeError` for what is no duration. */
export function limitsFor(options: ReplyOptions): (host: HostInfo | undefined) => Limits {
  const { grace = "200ms", hold = "25s", hosts = [] } = options;
  const limits = { graceMs: milliseconds(grace), holdMs: milliseconds(hold) };
  // A hold that was chosen is meant for every host.
  const rules = [...hosts.map(ruleOf), ...(options.hold === undefined ? known : [])];
  return (host) => {
    if (host === undefined) return limits;
    const name = host.name.toLowerCase();
    const found = rules.find((rule) => rule.name === name && host.version.startsWith(rule.version));
    return { graceMs: found?.graceMs ?? limits.graceMs, holdMs: found?.holdMs ?? limits.holdMs };
  };
}

function ruleOf({ name, version = "", grace, hold }: HostRule): Rule {
  return {
    name: name.toLowerCase(),
    version,
    ...(grace === undefined ? {} : { graceMs: milliseconds(grace) }),
    ...(hold === undefined ? {} : { holdMs: milliseconds(hold) }),
  };
}
