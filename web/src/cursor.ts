// The instant that somebody points at, shared by all parts of the page.

type Listener = (time: number) => void;

export class Cursor {
  private listeners: Listener[] = [];

  /** Calls `listener` with nanoseconds since the origin. */
  follow(listener: Listener): void {
    this.listeners.push(listener);
  }

  move(time: number): void {
    for (const listener of this.listeners) listener(time);
  }
}

/** Index of the last of `times` that is not after `time`; -1 if there is none. */
export function lastUpTo(times: ArrayLike<number>, time: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] as number) <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
