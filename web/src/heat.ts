// A map of cells: time from left to right, rows from bottom to top, darker for higher values.

import { type Cursor, lastUpTo } from "./cursor";
import { cleared, make, style } from "./dom";
import { onColors } from "./theme";

const HEIGHT = 220;
/** Width of the labels in pixels, where there is room for them. */
const LABEL_WIDTH = 118;

export interface Cells {
  title: string;
  rows: number;
  /** Starts of the columns, and the end of the last one. */
  times: number[];
  span: number;
  /** Values from 0 to 255, column by column. */
  values: Float64Array;
  /** Labels of rows, from the bottom; a row beyond the last one is the upper end. */
  labels: { row: number; text: string }[];
  /** Whether a line is drawn where a labeled row begins. */
  hasLines: boolean;
  /** Describes a cell in a line. */
  describe(column: number, row: number): string;
}

export class HeatMap {
  readonly element: HTMLElement;
  private canvas = make("canvas", { tabindex: 0, role: "application" });
  private description = make("p", { class: "description", "aria-live": "polite" });
  private column = 0;
  private row = 0;

  constructor(
    private cells: Cells,
    private cursor: Cursor,
  ) {
    const help = "Point at a cell to read it, click to select the instant. Keyboard: arrows move, Enter selects.";
    this.canvas.setAttribute("aria-label", `${cells.title}. ${help}`);
    this.element = make("div", { class: "addresses" }, this.canvas, this.description, make("p", { class: "note" }, help));
    this.canvas.addEventListener("mousemove", (event) => this.point(event));
    this.canvas.addEventListener("click", (event) => {
      this.point(event);
      this.pick(event.shiftKey);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
    onColors(() => this.draw());
    cursor.onSelection(() => this.draw());
    cursor.onView(() => this.draw());
    cursor.onMove((time) => {
      this.column = Math.max(0, lastUpTo(this.cells.times, time));
      this.describe();
    });
    this.describe();
  }

  private pick(compares: boolean): void {
    this.cursor.pick(this.cells.times[this.column] ?? 0, compares ? "compare" : "select");
  }

  private get left(): number {
    return this.element.clientWidth > 560 ? LABEL_WIDTH : 0;
  }

  /** The visible range, which is that of the timelines. */
  private get view(): { from: number; to: number } {
    const { from, to } = this.cursor.view;
    return Number.isFinite(from) && to > from ? { from, to } : { from: 0, to: Math.max(1, this.cells.span) };
  }

  private x(time: number): number {
    const width = this.element.clientWidth - this.left;
    const { from, to } = this.view;
    const part = Math.max(0, Math.min(1, (time - from) / (to - from)));
    return this.left + part * width;
  }

  private point(event: MouseEvent): void {
    const width = this.element.clientWidth - this.left;
    const { from, to } = this.view;
    const time = from + ((event.offsetX - this.left) / Math.max(1, width)) * (to - from);
    this.column = Math.max(0, lastUpTo(this.cells.times, time));
    const row = Math.floor((1 - event.offsetY / HEIGHT) * this.cells.rows);
    this.row = Math.max(0, Math.min(this.cells.rows - 1, row));
    this.describe();
  }

  private key(event: KeyboardEvent): void {
    const step = event.shiftKey ? 10 : 1;
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [-step, 0],
      ArrowRight: [step, 0],
      ArrowUp: [0, step],
      ArrowDown: [0, -step],
    };
    const move = moves[event.key];
    if (event.key === "Enter") this.pick(event.shiftKey);
    else if (move) {
      this.column = Math.max(0, Math.min(this.cells.times.length - 1, this.column + move[0]));
      this.row = Math.max(0, Math.min(this.cells.rows - 1, this.row + move[1]));
      this.describe();
    } else return;
    event.preventDefault();
  }

  private describe(): void {
    this.description.textContent = this.cells.describe(this.column, this.row);
  }

  private draw(): void {
    const width = this.element.clientWidth;
    if (width === 0) return;
    const context = cleared(this.canvas, width, HEIGHT);
    if (!context) return;
    context.fillStyle = style("--card");
    context.fillRect(this.left, 0, width - this.left, HEIGHT);
    const tall = HEIGHT / this.cells.rows;
    context.fillStyle = style("--series-0");
    this.drawUsage(context, Math.max(0, width - this.left), tall);
    context.globalAlpha = 1;
    this.drawLabels(context, width, tall);
    context.fillStyle = style("--link");
    const { from, to } = this.view;
    for (const { time } of this.cursor.selected) {
      if (time >= from && time <= to) context.fillRect(this.x(time) - 0.5, 0, 1, HEIGHT);
    }
  }

  /** Draws the maximum usage within each pixel, so that short uses stay visible. */
  private drawUsage(context: CanvasRenderingContext2D, width: number, tall: number): void {
    const { rows: cells, values } = this.cells;
    const most = new Uint8Array(cells * width);
    this.cells.times.forEach((time, column) => {
      const from = Math.min(width - 1, Math.floor(this.x(time) - this.left));
      const to = Math.min(width, Math.max(from + 1, Math.ceil(this.x(this.cells.times[column + 1] ?? this.cells.span) - this.left)));
      if (time > this.view.to || (this.cells.times[column + 1] ?? Infinity) < this.view.from) return;
      for (let cell = 0; cell < cells; cell++) {
        const part = values[column * cells + cell] ?? 0;
        for (let x = from; x < to && part > 0; x++) most[cell * width + x] = Math.max(most[cell * width + x] ?? 0, part);
      }
    });
    for (let cell = 0; cell < cells; cell++) {
      const row = most.subarray(cell * width, (cell + 1) * width);
      // Whole pixels, so that the background does not show between neighbors.
      const top = Math.floor(HEIGHT - (cell + 1) * tall);
      const bottom = Math.floor(HEIGHT - cell * tall);
      for (let from = 0, x = 1; x <= width; x++) {
        if (x < width && row[x] === row[from]) continue;
        const part = (row[from] ?? 0) / 255;
        context.globalAlpha = 0.15 + 0.85 * part;
        if (part > 0) context.fillRect(this.left + from, top, x - from, bottom - top);
        from = x;
      }
    }
  }

  /** Draws labels beside the rows, and lines where they begin. */
  private drawLabels(context: CanvasRenderingContext2D, width: number, tall: number): void {
    context.font = `11px ${style("--mono") || "monospace"}`;
    context.textAlign = "right";
    let free = HEIGHT + 1;
    for (const { row, text } of this.cells.labels) {
      const y = HEIGHT - row * tall;
      const isTop = row >= this.cells.rows;
      context.fillStyle = style("--page");
      if (row > 0 && !isTop && this.cells.hasLines) context.fillRect(this.left, y - 0.5, width - this.left, 1);
      if (this.left === 0 || (isTop ? free <= 26 : y >= free)) continue;
      context.textBaseline = isTop ? "top" : "bottom";
      context.fillStyle = style("--faint");
      context.fillText(text, this.left - 6, Math.min(HEIGHT, y));
      free = y - 13;
    }
  }
}
