import { appendFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { type TaskTool, taskTool } from "mcp-tasks";
import { z } from "zod";

/** Three bookings: each looks around, asks what the traveller prefers, and books, once. `ledger` is where bookings go. */
export function bookingTools(ledger: string): TaskTool[] {
  return [
    booking("book_flight", "Which seat?", z.object({ seat: z.enum(["aisle", "window"]) }), ledger),
    booking("book_hotel", "Which breakfast?", z.object({ breakfast: z.enum(["none", "full"]) }), ledger),
    booking("rent_car", "How many seats must it have?", z.object({ seats: z.int().min(2).max(9) }), ledger),
  ];
}

function booking<S extends z.ZodObject>(name: string, message: string, schema: S, ledger: string): TaskTool {
  return taskTool({
    name,
    description: `${name.replace("_", " ")} in a city`,
    inputSchema: z.object({ city: z.string() }),
    async run({ city }, task) {
      await task.step("search", () => delay(200));
      await task.report(`Found offers in ${city}`);
      const wish = await task.elicit("wish", { message, schema });
      const number = await task.step("book", async ({ key, signal }) => {
        await delay(200, undefined, { signal });
        // The booking API takes the same key as the same booking.
        appendFileSync(ledger, `${name} ${key}\n`);
        return key.slice(-4);
      });
      return { content: [{ type: "text", text: `${name} in ${city}: ${JSON.stringify(wish)}, number ${number}` }] };
    },
  });
}
