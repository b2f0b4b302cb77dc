/** Loaded first, it sets this process's clock wrong by so many milliseconds, as on a host with a bad clock. */
const skewMs = Number(process.env.CLOCK_SKEW_MS ?? 0);
const { now } = Date;
Date.now = () => now() + skewMs;
