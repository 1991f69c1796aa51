// The strip above the timelines: all of the recording, and the visible part as a window to drag.

import type { Steps } from "./align";
import type { Cursor, Span } from "./cursor";
import type { Mark } from "./data";
import { cleared, make, style } from "./dom";
import { bytes, elapsed } from "./format";
import { onColors } from "./theme";

const HEIGHT = 40;
/** Distance in pixels within which an edge of the window is grabbed. */
const GRAB = 6;

/** What a drag does: moves the window or one of its edges, or draws a new window. */
type Drag = { kind: "move" | "from" | "to"; at: number; window: Span } | { kind: "new"; at: number };

export class Overview {
  readonly element: HTMLElement;
  private canvas = make("canvas", { tabindex: 0, role: "application" });
  private line: Steps = { times: new Float64Array(), values: new Float64Array() };
  private marks: Mark[] = [];
  private all: Span = { from: 0, to: 1 };
  private drag: Drag | null = null;
  /** The window while it is dragged. */
  private draft: Span | null = null;

  constructor(private cursor: Cursor) {
    this.element = make("div", { id: "overview" }, this.canvas);
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerup", (event) => this.release(event));
    this.canvas.addEventListener("pointercancel", () => this.cancel());
    this.canvas.addEventListener("dblclick", () => this.cursor.zoom(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
    onColors(() => this.draw());
    cursor.onView(() => this.draw());
    cursor.onSelection(() => this.draw());
  }

  /** Shows newer data. */
  update(line: Steps, marks: Mark[], all: Span): void {
    [this.line, this.marks, this.all] = [line, marks, all];
    const most = line.values.reduce((most, value) => Math.max(most, value), 0);
    const help = "Drag to choose the visible range, double-click to show all. Keyboard: arrows move it, + and - zoom, 0 shows all.";
    this.canvas.setAttribute("aria-label", `Overview from ${elapsed(all.from)} to ${elapsed(all.to)}, up to ${bytes(most)}. ${help}`);
    this.canvas.title = "Drag to choose the visible range";
    this.draw();
  }

  /** The visible range. */
  private get window(): Span {
    const { from, to } = this.draft ?? this.cursor.view;
    return { from: Math.max(this.all.from, from), to: Math.min(this.all.to, to) };
  }

  private get isWhole(): boolean {
    const { from, to } = this.window;
    return from <= this.all.from && to >= this.all.to;
  }

  private x(time: number): number {
    return ((time - this.all.from) / (this.all.to - this.all.from)) * this.element.clientWidth;
  }

  private time(x: number): number {
    const part = Math.max(0, Math.min(1, x / Math.max(1, this.element.clientWidth)));
    return this.all.from + part * (this.all.to - this.all.from);
  }

  private press(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    const at = event.offsetX;
    const window = this.window;
    const near = (time: number) => Math.abs(this.x(time) - at) <= GRAB;
    if (this.isWhole) this.drag = { kind: "new", at };
    else if (near(window.from)) this.drag = { kind: "from", at, window };
    else if (near(window.to)) this.drag = { kind: "to", at, window };
    else if (at > this.x(window.from) && at < this.x(window.to)) this.drag = { kind: "move", at, window };
    else this.drag = { kind: "new", at };
  }

  private move(event: PointerEvent): void {
    const { drag } = this;
    if (!drag || Math.abs(event.offsetX - drag.at) < 3) return;
    const now = this.time(event.offsetX);
    if (drag.kind === "new") {
      const start = this.time(drag.at);
      this.draft = { from: Math.min(start, now), to: Math.max(start, now) };
    } else if (drag.kind === "move") this.draft = this.moved(drag.window, now - this.time(drag.at));
    else {
      const ends = drag.kind === "from" ? [now, drag.window.to] : [drag.window.from, now];
      this.draft = { from: Math.min(...ends), to: Math.max(...ends) };
    }
    this.draw();
  }

  private release(event: PointerEvent): void {
    const { drag, draft } = this;
    this.cancel();
    if (draft) this.cursor.zoom(draft);
    // A click outside the window moves it there.
    else if (drag?.kind === "new" && !this.isWhole) {
      const { from, to } = this.window;
      this.cursor.zoom(this.moved({ from, to }, this.time(event.offsetX) - (from + to) / 2));
    }
  }

  private cancel(): void {
    this.drag = this.draft = null;
    this.draw();
  }

  /** Returns a window that is moved, but not beyond the ends. */
  private moved({ from, to }: Span, by: number): Span {
    const step = Math.max(this.all.from - from, Math.min(this.all.to - to, by));
    return { from: from + step, to: to + step };
  }

  private key(event: KeyboardEvent): void {
    const { from, to } = this.window;
    const step = (to - from) * (event.shiftKey ? 0.5 : 0.1);
    const scaled = (factor: number): Span => {
      const [center, half] = [(from + to) / 2, ((to - from) / 2) * factor];
      return { from: Math.max(this.all.from, center - half), to: Math.min(this.all.to, center + half) };
    };
    const next: Record<string, () => Span | null> = {
      ArrowLeft: () => this.moved({ from, to }, -step),
      ArrowRight: () => this.moved({ from, to }, step),
      Home: () => this.moved({ from, to }, -Infinity),
      End: () => this.moved({ from, to }, Infinity),
      "+": () => scaled(0.5),
      "-": () => scaled(2),
      "0": () => null,
    };
    const act = next[event.key];
    if (!act) return;
    event.preventDefault();
    this.cursor.zoom(act());
  }

  private draw(): void {
    const width = this.element.clientWidth;
    if (width === 0) return;
    const context = cleared(this.canvas, width, HEIGHT);
    if (!context) return;
    this.drawLine(context, width);
    context.fillStyle = style("--mark");
    for (const { time } of this.marks) context.fillRect(this.x(time), HEIGHT - 5, 1, 5);
    context.fillStyle = style("--link");
    for (const { time } of this.cursor.selected) context.fillRect(this.x(time) - 0.5, 0, 1, HEIGHT);
    if (!this.isWhole) this.drawWindow(context, width);
  }

  /** Draws the highest value within each pixel, so that short peaks stay visible. */
  private drawLine(context: CanvasRenderingContext2D, width: number): void {
    const { times, values } = this.line;
    const most = values.reduce((most, value) => Math.max(most, value), 1);
    context.fillStyle = style("--shape");
    let at = 0;
    for (let x = 0; x < width; x++) {
      const end = this.time(x + 1);
      let high = at > 0 ? (values[at - 1] ?? 0) : 0;
      for (; at < times.length && (times[at] ?? 0) <= end; at++) high = Math.max(high, values[at] ?? 0);
      const tall = (high / most) * (HEIGHT - 4);
      context.fillRect(x, HEIGHT - tall, 1, tall);
    }
  }

  private drawWindow(context: CanvasRenderingContext2D, width: number): void {
    const [from, to] = [this.x(this.window.from), this.x(this.window.to)];
    context.fillStyle = style("--veil");
    context.fillRect(0, 0, from, HEIGHT);
    context.fillRect(to, 0, width - to, HEIGHT);
    context.fillStyle = style("--link");
    for (const x of [from, to]) {
      context.fillRect(x - 1, 0, 2, HEIGHT);
      context.fillRect(x - 3, HEIGHT / 2 - 8, 6, 16);
    }
  }
}
