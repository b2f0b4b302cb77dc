import { existsSync } from "node:fs";
import { defineConfig } from "vitest/config";

/** Tests run on the sources: the condition maps the package's own name to src/. */
const conditions = ["mcp-tasks-dev"];
const common = { testTimeout: 30_000, hookTimeout: 30_000 };
const interop = "test/interop";
const postgres = "test/postgres";

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions } },
  test: {
    // `npm run interop` passes without tests only for as long as nobody has begun with them.
    passWithNoTests: !existsSync(interop),
    // Most tests wait for processes of their own; by default a machine of two cores would run one file at a time.
    maxWorkers: 3,
    projects: [
      {
        extends: true,
        test: {
          ...common,
          name: "default",
          include: ["test/**/*.test.ts"],
          exclude: [`${interop}/**`, `${postgres}/**`],
        },
      },
      {
        extends: true,
        // The server answers plain requests about tasks without the SDK: here the SDK answers all of them.
        test: {
          ...common,
          name: "sdk",
          include: ["test/spec/**/*.test.ts", "test/cases/**/*.test.ts"],
          env: { MCP_TASKS_TEST_UNTOLD: "1" },
        },
      },
      {
        extends: true,
        // One server for all of them, started only when one of them runs.
        test: {
          ...common,
          name: "postgres",
          include: [`${postgres}/**/*.test.ts`],
          globalSetup: `${postgres}/setup.ts`,
          // They start programs and servers, which takes a busy machine its time.
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
      {
        extends: true,
        test: { ...common, name: "interop", include: [`${interop}/**/*.test.ts`], testTimeout: 120_000 },
      },
    ],
  },
});
