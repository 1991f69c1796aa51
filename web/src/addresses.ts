// A map of address usage: time from left to right, addresses from bottom to top.

import type { AddressMap, Document } from "./data";
import type { SnapshotData } from "./host";
import { type Cursor, lastUpTo } from "./cursor";
import { make, section, style } from "./dom";
import { bytes, seconds, share } from "./format";
import type { Snapshots } from "./snapshots";
import { onColors } from "./theme";

const NS = 1e9;
const HEIGHT = 320;
/** Width of the address labels in pixels, where there is room for them. */
const LABEL_WIDTH = 118;

export async function mapSections(data: Document, snapshotData: SnapshotData, snapshots: Snapshots, cursor: Cursor): Promise<HTMLElement[]> {
  const sections: HTMLElement[] = [];
  const { maps } = snapshotData.columns;
  for (const [at, map] of maps.entries()) {
    const [indices, used] = await Promise.all([snapshotData.numbers(map.snapshots), snapshotData.numbers(map.taken)]);
    const times = Array.from(indices, (index) => snapshots.times[index] ?? 0);
    const view = new MapView(data, map, times, used, cursor);
    const note =
      "Darker cells are more in use. Light gaps between dark bands are fragmentation. Address ranges that were never used are omitted, at the horizontal lines.";
    const title = maps.length > 1 ? `Addresses of ${map.title}` : "Addresses over time";
    sections.push(section(`addresses-${at}`, title, note, view.element));
  }
  return sections;
}

class MapView {
  readonly element: HTMLElement;
  private canvas = make("canvas", { tabindex: 0, role: "application" });
  private description = make("p", { class: "description", "aria-live": "polite" });
  private column = 0;
  private row = 0;

  constructor(
    private data: Document,
    private map: AddressMap,
    private times: number[],
    private used: Float64Array,
    private cursor: Cursor,
  ) {
    const help = "Point at a cell to read it, click to select the instant. Keyboard: arrows move, Enter selects.";
    this.canvas.setAttribute("aria-label", `Addresses in use over time, ${map.title}. ${help}`);
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
      this.column = Math.max(0, lastUpTo(this.times, time));
      this.describe();
    });
    this.describe();
  }

  private pick(compares: boolean): void {
    this.cursor.pick(this.times[this.column] ?? 0, compares ? "compare" : "select");
  }

  private get left(): number {
    return this.element.clientWidth > 560 ? LABEL_WIDTH : 0;
  }

  /** The visible range, which is that of the timelines. */
  private get view(): { from: number; to: number } {
    const { from, to } = this.cursor.view;
    return Number.isFinite(from) && to > from ? { from, to } : { from: 0, to: Math.max(1, this.data.span) };
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
    this.column = Math.max(0, lastUpTo(this.times, time));
    const row = Math.floor((1 - event.offsetY / HEIGHT) * this.map.cells);
    this.row = Math.max(0, Math.min(this.map.cells - 1, row));
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
      this.column = Math.max(0, Math.min(this.times.length - 1, this.column + move[0]));
      this.row = Math.max(0, Math.min(this.map.cells - 1, this.row + move[1]));
      this.describe();
    } else return;
    event.preventDefault();
  }

  /** Returns the start address of a cell. */
  private address(cell: number): string {
    let offset = cell * this.map.cell;
    for (const [start, length] of this.map.bands) {
      if (offset < length) return `0x${(BigInt(start) + BigInt(Math.floor(offset))).toString(16)}`;
      offset -= length;
    }
    return "";
  }

  private describe(): void {
    const part = (this.used[this.column * this.map.cells + this.row] ?? 0) / 255;
    const when = seconds((this.times[this.column] ?? 0) / NS, this.data.span / NS);
    this.description.textContent = `${when}: ${share(part)} of ${bytes(this.map.cell)} at ${this.address(this.row)} in use`;
  }

  private draw(): void {
    const width = this.element.clientWidth;
    if (width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(HEIGHT * ratio);
    this.canvas.style.height = `${HEIGHT}px`;
    const context = this.canvas.getContext("2d");
    if (!context) return;
    context.scale(ratio, ratio);
    context.fillStyle = style("--card");
    context.fillRect(this.left, 0, width - this.left, HEIGHT);
    const tall = HEIGHT / this.map.cells;
    context.fillStyle = style("--series-0");
    this.drawUsage(context, Math.max(0, width - this.left), tall);
    context.globalAlpha = 1;
    this.drawBands(context, width, tall);
    context.fillStyle = style("--link");
    const { from, to } = this.view;
    for (const { time } of this.cursor.selected) {
      if (time >= from && time <= to) context.fillRect(this.x(time) - 0.5, 0, 1, HEIGHT);
    }
  }

  /** Draws the maximum usage within each pixel, so that short uses stay visible. */
  private drawUsage(context: CanvasRenderingContext2D, width: number, tall: number): void {
    const { cells } = this.map;
    const most = new Uint8Array(cells * width);
    this.times.forEach((time, column) => {
      const from = Math.min(width - 1, Math.floor(this.x(time) - this.left));
      const to = Math.min(width, Math.max(from + 1, Math.ceil(this.x(this.times[column + 1] ?? this.data.span) - this.left)));
      if (time > this.view.to || (this.times[column + 1] ?? Infinity) < this.view.from) return;
      for (let cell = 0; cell < cells; cell++) {
        const part = this.used[column * cells + cell] ?? 0;
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

  private drawBands(context: CanvasRenderingContext2D, width: number, tall: number): void {
    context.font = `11px ${style("--mono") || "monospace"}`;
    context.textBaseline = "bottom";
    context.textAlign = "right";
    let offset = 0;
    let free = HEIGHT + 1;
    for (const [start, length] of this.map.bands) {
      const y = HEIGHT - (offset / this.map.cell) * tall;
      context.fillStyle = style("--page");
      if (offset > 0) context.fillRect(this.left, y - 0.5, width - this.left, 1);
      if (this.left > 0 && y < free) {
        context.fillStyle = style("--faint");
        context.fillText(start, this.left - 6, Math.min(HEIGHT, y));
        free = y - 13;
      }
      offset += length;
    }
    const last = this.map.bands[this.map.bands.length - 1];
    if (this.left > 0 && last && free > 26) {
      context.textBaseline = "top";
      context.fillStyle = style("--faint");
      context.fillText(`0x${(BigInt(last[0]) + BigInt(last[1])).toString(16)}`, this.left - 6, 0);
    }
  }
}
