import { Pool } from "pg";
import { afterAll, describe, test } from "vitest";
import { postgres } from "../../src/store/postgres/index.ts";
import { storeContract } from "../../src/testing.ts";
import { dropSchemas, empty, freshSchema, url } from "./database.ts";

const schema = freshSchema();
const pool = new Pool({ connectionString: url, max: 8 });

afterAll(async () => {
  await pool.end();
  await dropSchemas();
});

describe("Postgres", () => {
  test.each(storeContract)("%s", (_, run) =>
    run(async ({ clock }) => {
      await empty(pool, schema);
      return postgres(pool, { schema, clock });
    }),
  );
});
