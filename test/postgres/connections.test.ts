import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { Client, Pool } from "pg";
import { afterAll, expect, test } from "vitest";
import { create, owner } from "../../src/store/contract/kit.ts";
import { postgres } from "../../src/store/postgres/index.ts";
import { dropSchemas, freshSchema, openStore, query, url } from "./database.ts";
import { startProxy } from "./proxy.ts";
import { startServer } from "./server.ts";

afterAll(dropSchemas);

test("a store has no more connections than it was given, and one that listens", async () => {
  const schema = freshSchema();
  await using store = openStore(schema, { connections: 3, pg: { application_name: schema } });
  const ids: string[] = [];
  for (let n = 0; n < 8; n++) ids.push((await create(store)).id);
  const connected = () => query("SELECT FROM pg_stat_activity WHERE application_name = $1", [schema]);
  const holder = new Client(url);
  await holder.connect();
  await holder.query(`BEGIN; SELECT FROM ${schema}.task FOR UPDATE`);
  const stop = store.watch(() => {});
  const verbs = ids.flatMap((id) => [store.requestCancel(id, owner, 0), store.get(id, owner)]);
  const blocked = `SELECT FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`;
  await expect.poll(() => query(blocked, [schema]), { timeout: 15_000 }).toHaveLength(3);
  expect(await connected()).toHaveLength(3);
  await holder.query("COMMIT");
  await Promise.all(verbs);
  expect(await connected()).toHaveLength(3);
  stop();
  await holder.end();
});

test.each([
  ["its own", (url: string) => url],
  ["a given", (url: string) => new Pool({ connectionString: url })],
])("a connection that ends while it is handed over by %s pool takes nobody along", async (_, from) => {
  await using proxy = await startProxy(url);
  const where = from(proxy.url);
  {
    await using store = postgres(where, { schema: freshSchema(), listen: false });
    const { id } = await create(store);
    for (let n = 0; n < 3; n++) {
      proxy.endAtBirth();
      // As many at once as make the pool connect anew.
      const read = await Promise.allSettled(Array.from({ length: n + 2 }, () => store.get(id, owner)));
      expect(read.some(({ status }) => status === "fulfilled")).toBe(true);
    }
  }
  if (typeof where !== "string") await where.end();
});

/** A key and a certificate for 127.0.0.1 that the server may read. */
function makeCertificate() {
  const folder = mkdtempSync(path.join(tmpdir(), "mcp-tasks-tls-"));
  const [key, certificate] = [path.join(folder, "server.key"), path.join(folder, "server.crt")];
  const flags = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost".split(
    " ",
  );
  const names = ["-addext", "subjectAltName=IP:127.0.0.1"];
  execFileSync("openssl", [...flags, ...names, "-keyout", key, "-out", certificate], { stdio: "pipe" });
  chmodSync(folder, 0o755);
  chmodSync(key, 0o600);
  if (process.getuid?.() === 0) {
    // The server runs as nobody, and takes a key of root's that its group may read.
    chownSync(key, 0, Number(execFileSync("id", ["-g", "nobody"], { encoding: "utf8" })));
    chmodSync(key, 0o640);
  }
  return { folder, key, certificate };
}

test("every connection takes what pg is told of TLS, and trusts nobody else", async () => {
  const { folder, key, certificate } = makeCertificate();
  await using server = await startServer({ ssl: "on", ssl_cert_file: certificate, ssl_key_file: key });
  const ca = readFileSync(certificate, "utf8");
  {
    await using store = postgres(server.url, { pg: { ssl: { ca }, statement_timeout: 12_345 } });
    const stop = store.watch(() => {});
    await create(store);
    const names = "SELECT count(*)::int AS count FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)";
    const ours = `${names} WHERE application_name LIKE 'mcp-tasks%' AND ssl`;
    await expect.poll(() => query(ours, [], server.url), { timeout: 15_000 }).toEqual([{ count: 2 }]);
    const theirs = `${names} WHERE application_name LIKE 'mcp-tasks%' AND NOT ssl`;
    expect(await query(theirs, [], server.url)).toEqual([{ count: 0 }]);
    stop();
  }
  await using wary = postgres(server.url, { pg: { ssl: true } });
  await expect(create(wary)).rejects.toMatchObject({
    code: "STORE_UNAVAILABLE",
    cause: { code: "DEPTH_ZERO_SELF_SIGNED_CERT" },
  });
  rmSync(folder, { recursive: true });
});
