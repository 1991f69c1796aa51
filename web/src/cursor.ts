// The instant that somebody points at, shared by all parts of the page.

type Listener = (time: number) => void;

/** Whether an instant is looked at, or compared with the one that is. */
export type Pick = "look" | "compare";

export class Cursor {
  private listeners: Listener[] = [];
  private pickers: ((time: number, pick: Pick) => void)[] = [];
  private drawers = new Set<() => void>();
  private lookers: (() => void)[] = [];
  /** What is in sight, in nanoseconds. */
  view: { from: number; to: number } = { from: -Infinity, to: Infinity };
  /** When the timeline of live bytes is highest, as far as it is in sight; none if there is no such timeline. */
  summit: (() => number | null) | null = null;
  /** Instants that are marked in all timelines, with their letters. */
  picked: { time: number; letter: string }[] = [];

  /** Calls `listener` with nanoseconds since the origin. */
  follow(listener: Listener): void {
    this.listeners.push(listener);
  }

  move(time: number): void {
    for (const listener of this.listeners) listener(time);
  }

  /** Calls `picker` when somebody picks an instant. */
  onPick(picker: (time: number, pick: Pick) => void): void {
    this.pickers.push(picker);
  }

  pick(time: number, pick: Pick): void {
    for (const picker of this.pickers) picker(time, pick);
  }

  /** Calls `draw` when other instants are marked, until what is returned is called. */
  onMarked(draw: () => void): () => void {
    this.drawers.add(draw);
    return () => this.drawers.delete(draw);
  }

  /** Calls `draw` when other instants are in sight. A timeline says so while it draws, so it must not listen. */
  onLook(draw: () => void): void {
    this.lookers.push(draw);
  }

  look(from: number, to: number): void {
    if (from === this.view.from && to === this.view.to) return;
    this.view = { from, to };
    for (const draw of this.lookers) draw();
  }

  mark(picked: { time: number; letter: string }[]): void {
    this.picked = picked;
    for (const draw of this.drawers) draw();
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
