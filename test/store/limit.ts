import { expect } from "vitest";
import { newTask, owner } from "../../src/store/contract/kit.ts";
import type { TaskStore } from "../../src/store/store.ts";

/** The same numbers each time. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 48_271) % 2_147_483_647;
    return state % below;
  };
}

/** Creates and ends tasks of one owner around their limit, by one store after the other, and expects each answer. */
export async function expectExactLimit(stores: readonly TaskStore[], limit: number, steps: number): Promise<void> {
  const random = numbers(7);
  const live: string[] = [];
  const any = () => stores[random(stores.length)] as TaskStore;
  const create = async () => {
    const { id } = await any().create(newTask(), limit);
    live.push(id);
  };
  const end = async () => {
    const [id] = live.splice(random(live.length), 1);
    await any().requestCancel(id as string, owner, 0);
  };
  await Promise.all(Array.from({ length: limit - 3 }, create));
  for (let n = 0; n < steps; n++) {
    if (random(3) === 0) await end();
    else if (live.length < limit) await create();
    else await expect(create()).rejects.toMatchObject({ code: "TOO_MANY_TASKS" });
  }
}
