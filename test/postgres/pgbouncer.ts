import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chown, mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { anyPort, unprivileged } from "./server.ts";

/** Where PgBouncer is, and which one; undefined where it isn't installed. */
export function findPgBouncer(): { readonly program: string; readonly version: string } | undefined {
  for (const program of [process.env.PGBOUNCER ?? "pgbouncer", "/usr/sbin/pgbouncer"]) {
    try {
      const [, version = ""] = /PgBouncer (\S+)/.exec(execFileSync(program, ["-V"], { encoding: "utf8" })) ?? [];
      return { program, version };
    } catch {
      // Then it isn't there.
    }
  }
  return undefined;
}

/** A pooler in transaction mode before the server of this URL, with fewer connections to it than any store has. */
export async function startPgBouncer(
  program: string,
  url: string,
): Promise<AsyncDisposable & { readonly url: string }> {
  const folder = await mkdtemp(path.join(tmpdir(), "mcp-tasks-pgbouncer-"));
  const { hostname, port, username, password } = new URL(url);
  const settings = path.join(folder, "pgbouncer.ini");
  const users = path.join(folder, "users.txt");
  const own = anyPort();
  await writeFile(users, `"${username}" "${decodeURIComponent(password)}"\n`);
  await writeFile(
    settings,
    [
      `[databases]\n* = host=${hostname} port=${port}\n[pgbouncer]\npool_mode = transaction\ndefault_pool_size = 3`,
      `listen_addr = 127.0.0.1\nlisten_port = ${own}\nunix_socket_dir =\nauth_type = trust\nauth_file = ${users}\n`,
    ].join("\n"),
  );
  if (unprivileged.uid !== undefined)
    for (const item of [folder, settings, users]) await chown(item, unprivileged.uid, unprivileged.gid);
  const child = spawn(program, ["-q", settings], { ...unprivileged, cwd: folder, stdio: ["ignore", "ignore", "pipe"] });
  let complaints = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (complaints += text));
  const exited = once(child, "exit");
  while (!(await answers(own))) {
    if (child.exitCode !== null) throw new Error(`PgBouncer ended: ${complaints}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const there = new URL(url);
  there.port = String(own);
  return {
    url: there.href,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await exited;
      await rm(folder, { recursive: true });
    },
  };
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}
