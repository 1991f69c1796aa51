// What is drawn over the lines of a timeline: marks, ceilings, selected instants and the peak.

import uPlot from "uplot";
import type { ChartProps } from "./chart";
import { style } from "./dom";
import { bytes } from "./format";

const NS = 1e9;
/** Minimum distance between names of marks, in pixels. */
const MARK_GAP = 60;

/** A canvas with the place of the plot in it. */
interface Field {
  plot: uPlot;
  ctx: CanvasRenderingContext2D;
  ratio: number;
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export function overlay(props: ChartProps): uPlot.Plugin {
  const draw = (plot: uPlot) => {
    const { ctx } = plot;
    const ratio = uPlot.pxRatio;
    const { left, top, width, height } = plot.bbox;
    const field: Field = { plot, ctx, ratio, left, top, right: left + width, bottom: top + height };
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.font = `${11 * ratio}px ${style("--sans") || "sans-serif"}`;
    // Drawing the axes changes these.
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.lineWidth = ratio;
    drawMarks(field, props);
    drawCeilings(field, props);
    drawSelected(field, props);
    drawPeak(field, props);
    ctx.restore();
  };
  return { hooks: { draw } };
}

/** Returns the x position of a time; null if it is not visible. */
function position({ plot, left, right }: Field, time: number): number | null {
  const x = plot.valToPos(time / NS, "x", true);
  return x >= left && x <= right ? x : null;
}

function line({ ctx }: Field, ...[fromX, fromY, toX, toY]: [number, number, number, number]): void {
  ctx.beginPath();
  ctx.moveTo(fromX, fromY);
  ctx.lineTo(toX, toY);
  ctx.stroke();
}

function drawMarks(field: Field, { data }: ChartProps): void {
  const { ctx, ratio, top, bottom, right } = field;
  ctx.setLineDash([4 * ratio, 3 * ratio]);
  ctx.strokeStyle = ctx.fillStyle = style("--mark");
  let free = -Infinity;
  for (const { time, name } of data.marks) {
    const x = position(field, time);
    if (x === null) continue;
    line(field, x, top, x, bottom);
    if (x <= free) continue;
    const text = name.length > 24 ? `${name.slice(0, 23)}…` : name;
    const wide = ctx.measureText(text).width + 6 * ratio;
    // At the right edge the name is to the left of its line, if there is room.
    if (x + wide <= right) write(ctx, text, x + 3 * ratio, top + 12 * ratio);
    else if (x - wide > free) write(ctx, text, x - wide + 3 * ratio, top + 12 * ratio);
    free = x + Math.max(MARK_GAP * ratio, wide);
  }
  ctx.setLineDash([]);
}

/** Draws what bounds the memory: a line if it is in view, else an arrow with its value at the upper edge. */
function drawCeilings(field: Field, { chart }: ChartProps): void {
  const { ctx, ratio, left, right, top, plot } = field;
  ctx.strokeStyle = ctx.fillStyle = style("--bad");
  let below = top + 26 * ratio;
  for (const { name, bytes: size } of chart.ceilings) {
    const y = plot.valToPos(size, "y", true);
    const text = `${name} ${bytes(size)}`;
    if (y < top) {
      write(ctx, `↑ ${text}`, left + 6 * ratio, below);
      below += 14 * ratio;
      continue;
    }
    ctx.setLineDash([8 * ratio, 4 * ratio]);
    line(field, left, y, right, y);
    ctx.setLineDash([]);
    write(ctx, text, left + 6 * ratio, y + 13 * ratio);
  }
}

function drawSelected(field: Field, { cursor }: ChartProps): void {
  const { ctx, ratio, top, bottom, right } = field;
  ctx.strokeStyle = ctx.fillStyle = style("--link");
  for (const { time, letter } of cursor.selected) {
    const x = position(field, time);
    if (x === null) continue;
    line(field, x, top, x, bottom);
    const room = ctx.measureText(letter).width + 6 * ratio;
    write(ctx, letter, x + room > right ? x - room : x + 3 * ratio, bottom - 4 * ratio);
  }
}

function drawPeak(field: Field, { chart, data }: ChartProps): void {
  const { ctx, ratio, right, plot } = field;
  const x = chart.peak && position(field, chart.peak.time);
  // Without this check the name of an invisible peak could be visible.
  if (!chart.peak || x === null) return;
  const y = plot.valToPos(chart.peak.bytes, "y", true);
  ctx.fillStyle = ctx.strokeStyle = style("--bad");
  ctx.beginPath();
  ctx.arc(x, y, 4 * ratio, 0, 2 * Math.PI);
  ctx.fill();
  const text = `peak ${bytes(chart.peak.bytes)}`;
  const room = ctx.measureText(text).width + 8 * ratio;
  // Names of marks are along the upper edge.
  const lowest = data.marks.length > 0 ? field.top + 27 * ratio : 0;
  write(ctx, text, x + room > right ? x - room : x + 8 * ratio, Math.max(lowest, y - 6 * ratio));
}

/** Writes text with an outline that separates it from lines. */
function write(ctx: CanvasRenderingContext2D, text: string, x: number, y: number): void {
  ctx.save();
  ctx.setLineDash([]);
  ctx.lineJoin = "round";
  ctx.lineWidth = 3 * uPlot.pxRatio;
  ctx.strokeStyle = style("--page");
  ctx.strokeText(text, x, y);
  ctx.restore();
  ctx.fillText(text, x, y);
}
