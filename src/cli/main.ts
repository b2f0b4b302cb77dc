#!/usr/bin/env node
import process from "node:process";

/** Looks at Node before anything else is loaded: an older one fails at the first import of `node:sqlite`. */
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major < 22 || (major === 22 && minor < 18)) {
  process.stderr.write(`mcp-tasks: This is Node ${process.versions.node}. Node 22.18 or later is needed.\n`);
  process.exitCode = 1;
} else {
  // Node 22 warns that its SQLite is experimental, and standard error is for our own lines.
  process.removeAllListeners("warning").on("warning", ({ name, message }) => {
    if (name !== "ExperimentalWarning") process.stderr.write(`${name}: ${message}\n`);
  });
  await import("./program.ts");
}
