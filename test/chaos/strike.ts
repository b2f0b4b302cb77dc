import { setTimeout as pause } from "node:timers/promises";
import type { Blow, Database } from "./database.ts";
import type { Fleet, Post } from "./fleet.ts";
import type { Append } from "./log.ts";
import type { Random } from "./random.ts";

/** When nothing gets done for so long, the next blow comes anyway. */
const longestCalmMs = 800;

export interface StrikeOptions {
  readonly fleet: Fleet;
  readonly database: Database;
  readonly random: Random;
  readonly blows: number;
  readonly leaseMs: number;
  /** The part of the work that is done, from 0 to 1. */
  readonly done: () => number;
  readonly append: Append;
}

/**
 * Blows to processes, to their ways to the database and to the database itself. When they come is seeded by how much of
 * the work is done, so that a slow machine takes as many on the way as a fast one. Resolves with how many ended the
 * database.
 */
export async function strike({
  fleet,
  database,
  random,
  blows,
  leaseMs,
  done,
  append,
}: StrikeOptions): Promise<number> {
  let crashes = 0;
  const longerThanLease = () => random.between(leaseMs * 1.2, leaseMs * 2);
  const kinds: Readonly<Record<Blow, (post: Post) => void | Promise<void>>> = {
    kill: (post) => post.kill(),
    freeze: (post) => post.freeze(longerThanLease()),
    drain: (post) => post.drain(),
    all: () => fleet.workers.forEach((each) => each.kill()),
    front: (post) => post.kill(),
    freezeFront: (post) => post.freeze(longerThanLease()),
    cut: (post) => post.cut(),
    mute: (post) => post.mute(random.between(20, 300)),
    stall: (post) => post.stall(longerThanLease()),
    terminate: () => database.terminate(),
    async crash() {
      crashes += 1;
      await database.crash(random.chance(0.3) ? longerThanLease() : random.between(0, 300));
    },
  };
  for (const { kind, at, post, blind } of plan({ fleet, database, random, blows })) {
    const patience = Date.now() + longestCalmMs;
    while (done() < at && Date.now() < patience) await pause(10);
    while (!blind && !post.working() && Date.now() < patience + longestCalmMs) await pause(10);
    append(["blow", kind, post.name]);
    await kinds[kind](post);
    append(["blow", kind, "dealt"]);
    await pause(random.between(0, 150));
  }
  // The last one that was stopped must have its chance to write as a zombie.
  await pause(leaseMs * 2);
  return crashes;
}

/** The blows in their order: the first few make sure that each kind happens. */
function plan({ fleet, database, random, blows }: Pick<StrikeOptions, "fleet" | "database" | "random" | "blows">) {
  const { first, odds } = database.blows;
  const kinds = Object.entries(odds) as [Blow, number][];

  function draw(): Blow {
    let rest = random.next();
    return (kinds.find(([, chance]) => (rest -= chance) < 0) ?? kinds[0]!)[0];
  }

  const planned = first.slice(0, blows);
  return [...planned, ...Array.from({ length: blows - planned.length }, draw)]
    .map((kind) => {
      const at = random.next() * 0.85;
      const isFront = kind === "front" || kind === "freezeFront" || (isOfLine(kind) && random.chance(0.3));
      // Now and then one that is just starting, or stopped, is hit; most blows are for those who work.
      return { kind, at, post: random.pick(isFront ? fleet.fronts : fleet.workers), blind: random.chance(0.15) };
    })
    .toSorted((a, b) => a.at - b.at);
}

const isOfLine = (kind: Blow) => kind === "cut" || kind === "mute" || kind === "stall";
