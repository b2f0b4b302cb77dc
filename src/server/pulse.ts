/** What is kept alive by writing something now and then. */
export interface Alive {
  beat(): void;
}

/** What keeps open streams alive: one timer for all of them, however many there are. */
export interface Pulse {
  add(stream: Alive): void;
  delete(stream: Alive): void;
}

/** A pulse that beats every so many milliseconds, or never for 0. */
export function createPulse(everyMs: number): Pulse {
  const streams = new Set<Alive>();
  let timer: NodeJS.Timeout | undefined;

  return {
    add(stream) {
      if (everyMs === 0) return;
      streams.add(stream);
      timer ??= setInterval(() => streams.forEach((each) => each.beat()), everyMs).unref();
    },
    delete(stream) {
      streams.delete(stream);
      if (streams.size > 0) return;
      clearInterval(timer);
      timer = undefined;
    },
  };
}
