/** Pseudo-random choices that a seed repeats. */
export interface Random {
  /** From 0 up to but not including 1. */
  next(): number;
  /** A whole number; both ends are possible. */
  between(least: number, most: number): number;
  chance(probability: number): boolean;
  pick<T>(list: readonly T[]): T;
  /** Another source, that depends on this one's seed and the given number alone. */
  branch(index: number): Random;
}

/** Mulberry32: small, and good enough to mix things up. */
export function createRandom(seed: number): Random {
  let state = scatter(seed);
  function next(): number {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }
  return {
    next,
    between: (least, most) => least + Math.floor(next() * (most - least + 1)),
    chance: (probability) => next() < probability,
    pick: (list) => list[Math.floor(next() * list.length)]!,
    branch: (index) => createRandom(scatter(seed) + Math.imul(index + 1, 0x9e3779b1)),
  };
}

/** Neighbouring seeds must not give neighbouring sequences. */
function scatter(seed: number): number {
  const once = Math.imul(seed ^ (seed >>> 16), 0x85ebca6b);
  return Math.imul(once ^ (once >>> 13), 0xc2b2ae35) | 0;
}
