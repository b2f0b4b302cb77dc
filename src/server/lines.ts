import { Transform } from "node:stream";

const lineFeed = 10;

/** No JSON has it, so that the beginning of a line is never taken for a whole one. */
const cut = Buffer.from("\0\n");

/**
 * Passes lines on, each in one piece or in several. Of one that is longer than so many bytes the rest is thrown away,
 * what was passed on of it is made unreadable, and `tooLong` is told once: one such line must not end a connection.
 */
export function boundedLines(maxBytes: number, tooLong: () => void): Transform {
  let length = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      for (let at = 0; at < chunk.length;) {
        const feed = chunk.indexOf(lineFeed, at);
        const end = feed < 0 ? chunk.length : feed + 1;
        const fitted = length <= maxBytes;
        length += end - at;
        if (length <= maxBytes) this.push(chunk.subarray(at, end));
        else {
          if (fitted) tooLong();
          if (feed >= 0) this.push(cut);
        }
        if (feed >= 0) length = 0;
        at = end;
      }
      done();
    },
  });
}
