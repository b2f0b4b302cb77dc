import { execFileSync, spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";

/** A machine of its own, as far as its network goes. */
export interface Host {
  readonly address: string;
  /** What goes before a command to run it there. */
  readonly enter: readonly string[];
  /** Pulls the cable out: what is sent from now on waits, and nobody is told. */
  unplug(): void;
  plug(): void;
}

export interface Network<Name extends string> extends AsyncDisposable {
  readonly hosts: Readonly<Record<Name, Host>>;
}

/** Why there can be no such network here, or null. It takes Linux, root, iproute2 and util-linux. */
export function whyNoNetwork(): string | null {
  const needed = "ip link add veth0 type veth peer name veth1 && ip link add bridge0 type bridge";
  const { error, status, stderr } = spawnSync("unshare", ["--net", "sh", "-c", needed], { encoding: "utf8" });
  if (error === undefined && status === 0) return null;
  return `needs Linux, root and iproute2 (${error?.message ?? stderr.trim()})`;
}

/**
 * Hosts on one switch, in a subnet of their own. Each is a network namespace without a name, which lives as long as the
 * processes in it; those of ours end with our end of a pipe. So nothing stays, however we end.
 */
export async function openNetwork<Name extends string>(names: readonly Name[]): Promise<Network<Name>> {
  const holders: ChildProcess[] = [];

  /** A namespace, as the process that holds it, and what goes before a command to run it in there. */
  async function hold() {
    const holder = spawn("unshare", ["--net", "cat"], { stdio: ["pipe", "pipe", "inherit"] });
    holders.push(holder);
    holder.stdin.write("ready\n");
    await once(holder.stdout, "data");
    return { pid: String(holder.pid), enter: ["nsenter", "--target", String(holder.pid), "--net"] };
  }

  const bridge = await hold();
  const inBridge = (...words: string[]) => run([...bridge.enter, "ip", "link", ...words]);
  inBridge("add", "bridge", "type", "bridge");
  inBridge("set", "bridge", "up");

  async function host(number: number): Promise<Host> {
    const { pid, enter } = await hold();
    const port = `port${number}`;
    const address = `10.231.0.${number}`;
    inBridge("add", port, "type", "veth", "peer", "name", "eth0", "netns", pid);
    inBridge("set", port, "master", "bridge", "up");
    run([...enter, "ip", "address", "add", `${address}/24`, "dev", "eth0"]);
    for (const device of ["lo", "eth0"]) run([...enter, "ip", "link", "set", device, "up"]);
    return {
      address,
      enter,
      unplug: () => inBridge("set", port, "down"),
      plug: () => inBridge("set", port, "up"),
    };
  }

  const hosts = await Promise.all(names.map(async (name, index) => [name, await host(index + 1)] as const));
  return {
    hosts: Object.fromEntries(hosts) as Record<Name, Host>,
    async [Symbol.asyncDispose]() {
      const ends = holders.map((holder) => once(holder, "exit"));
      for (const holder of holders) holder.stdin?.end();
      await Promise.all(ends);
    },
  };
}

function run([command = "", ...words]: readonly string[]): void {
  execFileSync(command, words, { stdio: "pipe" });
}
