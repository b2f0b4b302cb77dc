/** Ctrl-C, whether it comes as a signal or as a key. */
export interface Interrupts {
  /** Takes Ctrl-C over; the function returned gives it back. */
  take(listener: () => void): () => void;
  /** Ctrl-C was pressed. */
  readonly fire: () => void;
  /** How often it was. */
  readonly count: number;
}

/** `otherwise` is what Ctrl-C does while nobody has taken it over. */
export function createInterrupts(otherwise: () => void): Interrupts {
  const listeners = new Set<() => void>();
  let count = 0;
  return {
    get count() {
      return count;
    },
    take(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    fire() {
      count += 1;
      if (listeners.size === 0) otherwise();
      for (const listener of listeners) listener();
    },
  };
}
