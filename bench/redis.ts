import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/** A Redis of our own that flushes its log to the disk before it answers. */
export interface RedisServer extends AsyncDisposable {
  readonly url: string;
  readonly version: string;
  usedBytes(): Promise<number>;
}

const run = promisify(execFile);

/** Ends the server when our end of the pipe closes, as it does even when we are killed. */
const guard = `"$@" & server=$!; exec 3<&0; (cat <&3 > /dev/null; kill $server) 2> /dev/null & wait $server`;

/** Throws where no redis-server is installed. */
export async function startRedis(): Promise<RedisServer> {
  const { stdout } = await run("redis-server", ["--version"]).catch(() => {
    throw new Error("there is no redis-server on the PATH");
  });
  const folder = await mkdtemp(join(tmpdir(), "mcp-tasks-redis-"));
  const port = String(15_000 + Math.floor(Math.random() * 17_000));
  const settings = ["--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--daemonize", "no"];
  const log = ["--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no"];
  const server = spawn("/bin/sh", ["-c", guard, "sh", "redis-server", ...settings, ...log], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const exited = once(server, "exit");
  await new Promise<void>((resolve, reject) => {
    let said = "";
    server.stdout.setEncoding("utf8").on("data", (text: string) => {
      said = (said + text).slice(-4_000);
      if (said.includes("eady to accept connections")) resolve();
    });
    server.once("exit", () => reject(new Error(`redis-server ended: ${said}`)));
  });
  return {
    url: `redis://127.0.0.1:${port}`,
    version: /v=(\S+)/.exec(stdout)?.[1] ?? "unknown",
    async usedBytes() {
      const info = await run("redis-cli", ["-h", "127.0.0.1", "-p", port, "info", "memory"]);
      return Number(/used_memory:(\d+)/.exec(info.stdout)?.[1]);
    },
    async [Symbol.asyncDispose]() {
      server.stdin.end();
      await exited;
      await rm(folder, { recursive: true, force: true });
    },
  };
}
