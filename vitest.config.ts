import { defineConfig } from "vitest/config";

/** Tests run on the sources: the condition maps the package's own name to src/. */
const conditions = ["mcp-tasks-dev"];

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions } },
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/interop/**"],
    testTimeout: 30_000,
  },
});
