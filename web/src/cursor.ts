// State that all parts of the page share: the instant under the pointer, the selected instants and the visible range.

type Listener = (time: number) => void;

/** Whether a picked instant replaces the selection or is compared with it. */
export type Pick = "select" | "compare";

/** A range of nanoseconds since the origin. */
export interface Span {
  from: number;
  to: number;
}

/** An instant that all timelines mark, with its letter. */
export interface Selected {
  time: number;
  letter: string;
}

export class Cursor {
  private moveListeners: Listener[] = [];
  private pickListeners: ((time: number, pick: Pick) => void)[] = [];
  private selectionListeners = new Set<() => void>();
  private viewListeners: (() => void)[] = [];
  private changeListeners: (() => void)[] = [];
  private zoomListeners = new Map<object, (span: Span | null) => void>();
  /** The visible range. */
  view: Span = { from: -Infinity, to: Infinity };
  /** The visible range if it is zoomed, else null. */
  zoomed: Span | null = null;
  /** Returns the time of the highest visible live bytes; null without such a timeline. */
  highestInView: (() => number | null) | null = null;
  selected: Selected[] = [];

  /** Calls `listener` with the time under the pointer, in nanoseconds since the origin. */
  onMove(listener: Listener): void {
    this.moveListeners.push(listener);
  }

  move(time: number): void {
    for (const listener of this.moveListeners) listener(time);
  }

  /** Calls `listener` when the reader picks an instant. */
  onPick(listener: (time: number, pick: Pick) => void): void {
    this.pickListeners.push(listener);
  }

  pick(time: number, pick: Pick): void {
    for (const listener of this.pickListeners) listener(time, pick);
  }

  /** Calls `draw` when other instants are selected. Returns a function that removes it. */
  onSelection(draw: () => void): () => void {
    this.selectionListeners.add(draw);
    return () => this.selectionListeners.delete(draw);
  }

  select(selected: Selected[]): void {
    this.selected = selected;
    for (const draw of this.selectionListeners) draw();
    this.notifyChange();
  }

  /** Calls `draw` when the visible range changes. Timelines set the range while drawing and must not listen. */
  onView(draw: () => void): void {
    this.viewListeners.push(draw);
  }

  setView(from: number, to: number): void {
    if (from === this.view.from && to === this.view.to) return;
    this.view = { from, to };
    for (const draw of this.viewListeners) draw();
    this.notifyChange();
  }

  /** Redraws what is aligned with the timelines after their width has changed. */
  resize(): void {
    for (const draw of this.viewListeners) draw();
  }

  /** Calls `zoom` when timelines should show a range, or everything for null. Returns a function that removes it. */
  onZoom(timeline: object, zoom: (span: Span | null) => void): () => void {
    this.zoomListeners.set(timeline, zoom);
    return () => this.zoomListeners.delete(timeline);
  }

  /** Zooms all timelines to a range, or out for null. */
  zoom(span: Span | null): void {
    for (const zoom of this.zoomListeners.values()) zoom(span);
  }

  /** Calls `listener` when anything changes that the page's address encodes. */
  onChange(listener: () => void): void {
    this.changeListeners.push(listener);
  }

  notifyChange(): void {
    for (const listener of this.changeListeners) listener();
  }
}

/** Returns the index of the last of the sorted `times` that is not after `time`, or -1. */
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
