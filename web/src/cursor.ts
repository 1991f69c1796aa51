// The instant that somebody points at, shared by all parts of the page.

type Listener = (time: number) => void;

/** Whether an instant is looked at, or compared with the one that is. */
export type Pick = "look" | "compare";

/** Nanoseconds since the origin. */
export interface Span {
  from: number;
  to: number;
}

export class Cursor {
  private listeners: Listener[] = [];
  private pickers: ((time: number, pick: Pick) => void)[] = [];
  private drawers = new Set<() => void>();
  private lookers: (() => void)[] = [];
  private changes: (() => void)[] = [];
  private zooms = new Map<object, (span: Span | null) => void>();
  /** What is in sight. */
  view: Span = { from: -Infinity, to: Infinity };
  /** The same, if it is not all. */
  span: Span | null = null;
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
    this.change();
  }

  /** Calls `zoom` when timelines are to show a part, or all, until what is returned is called. */
  onZoom(timeline: object, zoom: (span: Span | null) => void): () => void {
    this.zooms.set(timeline, zoom);
    return () => this.zooms.delete(timeline);
  }

  /** Has all timelines show a part, or all. */
  zoom(span: Span | null): void {
    for (const zoom of this.zooms.values()) zoom(span);
  }

  /** Calls `listener` when something else is looked at. */
  onChange(listener: () => void): void {
    this.changes.push(listener);
  }

  change(): void {
    for (const listener of this.changes) listener();
  }

  mark(picked: { time: number; letter: string }[]): void {
    this.picked = picked;
    for (const draw of this.drawers) draw();
    this.change();
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
