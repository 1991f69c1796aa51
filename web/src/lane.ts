// The lane of ranges under the first timeline: scopes and NVTX ranges, nested in rows.

import type { Document, RangeColumns } from "./data";
import type { Host } from "./host";
import type { Cursor } from "./cursor";
import { cleared, make, section, style } from "./dom";
import { duration, elapsed } from "./format";
import { onColors } from "./theme";

const ROW = 20;
const COLORS = 10;

interface Range {
  name: string;
  from: number;
  to: number;
  row: number;
}

/** A lane that can be updated while the document grows. */
export class RangeLane {
  readonly element: HTMLElement;
  private canvas = make("canvas", { tabindex: 0, role: "application" });
  private description = make("p", { class: "description", "aria-live": "polite" });
  private note = make("p", { class: "note" });
  private ranges: Range[] = [];
  private rows = 1;
  private span = 1;
  private current = -1;

  constructor(private cursor: Cursor) {
    const help = "Point at a range to read it, click to zoom to it. Keyboard: arrows move, Enter zooms.";
    this.canvas.setAttribute("aria-label", `Ranges over time. ${help}`);
    this.canvas.title = help;
    this.element = section("ranges", "Ranges", "", make("div", { class: "lane" }, make("div", { class: "rows" }, this.canvas), this.description), this.note);
    this.canvas.addEventListener("mousemove", (event) => this.point(this.at(event)));
    this.canvas.addEventListener("mouseleave", () => this.point(-1));
    this.canvas.addEventListener("click", (event) => this.zoom(this.at(event)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
    onColors(() => this.draw());
    cursor.onView(() => this.draw());
  }

  async update(host: Host, data: Document, columns: RangeColumns): Promise<void> {
    const [starts, ends, rows, names] = await Promise.all([columns.starts, columns.ends, columns.levels, columns.names].map((column) => host.numbers(column)));
    this.ranges = Array.from(starts ?? [], (from, at) => ({
      name: data.strings[names?.[at] ?? -1] ?? "?",
      from,
      to: ends?.[at] ?? from,
      row: rows?.[at] ?? 0,
    }));
    this.rows = this.ranges.reduce((most, { row }) => Math.max(most, row + 1), 1);
    this.span = Math.max(1, data.span);
    this.note.textContent = columns.note;
    this.note.hidden = !columns.note;
    this.draw();
  }

  /** The visible range, which is that of the timelines. */
  private get view(): { from: number; to: number } {
    const { from, to } = this.cursor.view;
    return Number.isFinite(from) && to > from ? { from, to } : { from: 0, to: this.span };
  }

  /** Left edge and width in pixels, which are those of the first timeline. */
  private get field(): { left: number; width: number } {
    const over = document.querySelector("#timeline .panel:not(.inactive) .u-over")?.getBoundingClientRect();
    const own = this.canvas.getBoundingClientRect();
    if (!over || over.width === 0) return { left: 0, width: own.width };
    return { left: over.left - own.left, width: over.width };
  }

  private x(time: number, { left, width } = this.field): number {
    const { from, to } = this.view;
    return left + ((time - from) / (to - from)) * width;
  }

  /** Returns the index of the range under the pointer, or -1. */
  private at({ offsetX, offsetY }: MouseEvent): number {
    const row = Math.floor(offsetY / ROW);
    const field = this.field;
    // Short ranges are drawn a pixel wide.
    const isHit = ({ from, to }: Range) => offsetX >= this.x(from, field) - 1 && offsetX <= Math.max(this.x(to, field), this.x(from, field) + 2);
    return this.ranges.findIndex((range) => range.row === row && isHit(range));
  }

  private point(at: number): void {
    if (at === this.current) return;
    this.current = at;
    const range = this.ranges[at];
    this.description.textContent = range ? `${range.name}: ${duration(range.to - range.from)}, from ${elapsed(range.from)} to ${elapsed(range.to)}` : "";
    this.draw();
  }

  private zoom(at: number): void {
    const range = this.ranges[at];
    if (!range) return;
    const around = Math.max(1, (range.to - range.from) * 0.02);
    this.cursor.zoom({ from: range.from - around, to: range.to + around });
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (event.key === "Enter") this.zoom(this.current);
    else if (step !== undefined) this.point(Math.max(0, Math.min(this.ranges.length - 1, this.current + step)));
    else return;
    event.preventDefault();
  }

  private draw(): void {
    const width = this.canvas.clientWidth;
    if (width === 0) return;
    const ctx = cleared(this.canvas, width, this.rows * ROW);
    if (!ctx) return;
    ctx.font = `12px ${style("--sans")}`;
    ctx.textBaseline = "middle";
    const field = this.field;
    ctx.beginPath();
    ctx.rect(field.left, 0, field.width, this.rows * ROW);
    ctx.clip();
    this.ranges.forEach((range, at) => this.box(ctx, range, at, field));
  }

  private box(ctx: CanvasRenderingContext2D, range: Range, at: number, field: { left: number; width: number }): void {
    const { left, width } = field;
    const from = Math.max(left, this.x(range.from, field));
    const to = Math.min(left + width, Math.max(this.x(range.to, field), this.x(range.from, field) + 1));
    if (to <= left || from >= left + width) return;
    const top = range.row * ROW;
    ctx.globalAlpha = at === this.current ? 0.55 : 0.28;
    ctx.fillStyle = style(`--series-${hash(range.name) % COLORS}`);
    ctx.fillRect(from, top + 1, Math.max(1, to - from - 0.5), ROW - 2);
    ctx.globalAlpha = 1;
    if (to - from < 24) return;
    ctx.save();
    ctx.beginPath();
    ctx.rect(from, top, to - from - 3, ROW);
    ctx.clip();
    ctx.fillStyle = style("--text");
    ctx.fillText(range.name, from + 4, top + ROW / 2);
    ctx.restore();
  }
}

/** Returns a number that is the same for equal names. */
function hash(name: string): number {
  let sum = 0;
  for (let at = 0; at < name.length; at++) sum = (sum * 31 + name.charCodeAt(at)) >>> 0;
  return sum;
}
