import { execFile } from "node:child_process";
import { access, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const folder = fileURLToPath(new URL("peers/", import.meta.url));

/** Installs the other engines, as `peers/package-lock.json` pins them, on first use. Null, or why they are not there. */
export async function installPeers(): Promise<string | null> {
  const installed = await access(`${folder}node_modules/.package-lock.json`).then(
    () => true,
    () => false,
  );
  if (installed) return null;
  console.error("Installing the engines to compare with: npm ci --prefix bench/peers --ignore-scripts");
  const npm = process.platform === "win32" ? "npm.cmd" : "npm";
  try {
    await promisify(execFile)(npm, ["ci", "--prefix", folder, "--ignore-scripts"], { timeout: 180_000 });
    return null;
  } catch {
    return "not installed";
  }
}

/** The versions of other engines by their names in the registry. */
export async function peerVersions(...names: string[]): Promise<Readonly<Record<string, string>>> {
  const { dependencies } = JSON.parse(await readFile(`${folder}package.json`, "utf8")) as {
    dependencies: Record<string, string>;
  };
  return Object.fromEntries(names.map((name) => [name, dependencies[name] ?? "none"]));
}
