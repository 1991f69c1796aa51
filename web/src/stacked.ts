// What is drawn below a timeline: areas that add up to its line, by site, process, stream ..., or one for each block.
//
// Each area is a step function over the snapshots of the document. Where several snapshots share a pixel, the one with
// most bytes is drawn, so that peaks stay visible.

import type uPlot from "uplot";
import { lastUpTo } from "./cursor";
import type { Breakdown } from "./data";
import type { SnapshotData } from "./host";
import type { Snapshots } from "./snapshots";

const NS = 1e9;
/** Blocks that are drawn one by one; the smaller ones are one area. */
export const MOST_BLOCKS = 250;
export const SMALLER = "smaller blocks";

/** Step functions that add up: what each of the names held from a time on. */
export interface Layers {
  names: string[];
  /** Times in nanoseconds since the origin. */
  times: Float64Array;
  /** Bytes of a layer at the index of a time. */
  value(layer: number, at: number): number;
  /** Number that decides the color of a layer; -1 for the sum of the others. */
  color(layer: number): number;
}

/** Reads a breakdown, layers in the order of their peaks. */
export async function layersOf(data: SnapshotData, breakdown: Breakdown, times: Float64Array): Promise<Layers> {
  const [bands, snapshots, bytes] = await Promise.all([breakdown.bands, breakdown.snapshots, breakdown.bytes].map((column) => data.numbers(column)));
  const values = breakdown.names.map(() => new Float64Array(times.length));
  const count = bands?.length ?? 0;
  for (let step = 0; step < count; step++) {
    const band = bands?.[step] ?? 0;
    const end = bands?.[step + 1] === band ? snapshots?.[step + 1] : times.length;
    values[band]?.fill(bytes?.[step] ?? 0, snapshots?.[step] ?? 0, end);
  }
  const others = breakdown.others;
  return {
    names: breakdown.names.map((name) => data.strings[name] ?? "?"),
    times,
    value: (layer, at) => values[layer]?.[at] ?? 0,
    color: (layer) => (layer === others ? -1 : layer),
  };
}

/** Returns lines as layers that add up to the first; what they leave of it is the last layer. */
export function layersOfLines(names: string[], times: number[], values: (number | null)[][], from: number): Layers {
  const layer = (index: number, at: number) => values[from + index]?.[at] ?? 0;
  const count = names.length - from;
  const rest = times.map((_, at) => {
    let sum = 0;
    for (let index = 0; index < count; index++) sum += layer(index, at);
    return Math.max(0, (values[0]?.[at] ?? 0) - sum);
  });
  const hasRest = rest.some((value) => value > 0);
  return {
    names: [...names.slice(from), ...(hasRest ? ["others"] : [])],
    times: Float64Array.from(times, (time) => time * NS),
    value: (index, at) => (index < count ? layer(index, at) : (rest[at] ?? 0)),
    color: (index) => (index < count ? from + index : -1),
  };
}

/** Returns the blocks that are live between two snapshots as layers, oldest first. */
export function blockLayers(snapshots: Snapshots, from: number, to: number): Layers {
  const live = snapshots.liveBetween(from, to);
  const { times } = snapshots;
  // Blocks of the same size differ by how long they are visible.
  const areas = new Map(live.map((row) => {
    const { first, after } = snapshots.lifetime(row);
    const [begin, end] = [times[Math.max(from, first)] ?? 0, times[Math.min(after, to, times.length - 1)] ?? 0];
    return [row, snapshots.block(row).bytes * Math.max(1, end - begin)];
  }));
  const largest = new Set([...live].sort((a, b) => (areas.get(b) ?? 0) - (areas.get(a) ?? 0)).slice(0, MOST_BLOCKS));
  const rows = live.filter((row) => largest.has(row));
  const blocks = rows.map((row) => snapshots.block(row));
  const rest = live.filter((row) => !largest.has(row));
  const sums = new Float64Array(rest.length > 0 ? to + 1 : 0);
  for (const row of rest) {
    const { first, after } = snapshots.lifetime(row);
    const { bytes } = snapshots.block(row);
    for (let at = Math.max(from, first); at < Math.min(after, to + 1); at++) sums[at] = (sums[at] ?? 0) + bytes;
  }
  const below = rest.length > 0 ? 1 : 0;
  const names = blocks.map(({ site, address }) => (site === "(no stack)" ? address : `${site}, ${address}`));
  return {
    names: [...(below ? [SMALLER] : []), ...names],
    times: snapshots.times,
    value: (layer, at) => {
      const row = rows[layer - below];
      if (row === undefined) return sums[at] ?? 0;
      const { first, after } = snapshots.lifetime(row);
      return first <= at && at < after ? (blocks[layer - below]?.bytes ?? 0) : 0;
    },
    color: (layer) => (layer < below ? -1 : (blocks[layer - below]?.group ?? 0)),
  };
}

/** A stretch of pixels with the snapshot that is drawn in it. */
interface Stretch {
  from: number;
  to: number;
  at: number;
}

/** Returns the stretches of the visible range, in pixels of the canvas. */
function stretches(plot: uPlot, layers: Layers): Stretch[] {
  const { left, width } = plot.bbox;
  const { min = 0, max = 1 } = plot.scales.x as { min?: number; max?: number };
  const x = (time: number) => left + ((time / NS - min) / (max - min)) * width;
  const first = Math.max(0, lastUpTo(layers.times, min * NS));
  const last = lastUpTo(layers.times, max * NS);
  const total = (at: number) => layers.names.reduce((sum, _, layer) => sum + layers.value(layer, at), 0);
  const list: Stretch[] = [];
  for (let at = first; at <= last; at++) {
    const from = Math.max(left, x(layers.times[at] ?? 0));
    const before = list[list.length - 1];
    const next = at < last ? x(layers.times[at + 1] ?? 0) : left + width;
    if (before && from - before.from < 1) {
      if (total(at) >= total(before.at)) before.at = at;
      before.to = next;
    } else {
      if (before) before.to = from;
      list.push({ from, to: next, at });
    }
  }
  return list;
}

/** Draws the layers into a timeline; the pointed one is darker. */
export function drawLayers(plot: uPlot, layers: Layers, colors: (layer: number) => string, edge: string, pointed: number): void {
  const { ctx } = plot;
  const { left, top, width, height } = plot.bbox;
  const parts = stretches(plot, layers);
  const zero = plot.valToPos(0, "y", true);
  const scale = zero - plot.valToPos(1, "y", true);
  const below = new Float64Array(parts.length);
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.lineWidth = 0.75;
  ctx.strokeStyle = edge;
  layers.names.forEach((_, layer) => {
    const path = new Path2D();
    const edges = new Path2D();
    // Runs of stretches without this layer are left out.
    for (let at = 0; at < parts.length; at++) {
      if (layers.value(layer, parts[at]?.at ?? 0) === 0) continue;
      let end = at;
      while (end < parts.length && layers.value(layer, parts[end]?.at ?? 0) > 0) end++;
      outline({ path, edges }, parts, below, [at, end], (part) => layers.value(layer, part.at), (value) => zero - value * scale);
      at = end;
    }
    parts.forEach((part, at) => (below[at] = (below[at] ?? 0) + layers.value(layer, part.at)));
    ctx.globalAlpha = pointed < 0 ? 0.72 : pointed === layer ? 1 : 0.38;
    ctx.fillStyle = colors(layer);
    ctx.fill(path);
    ctx.globalAlpha = 1;
    ctx.stroke(edges);
  });
  ctx.restore();
}

/** Adds the outline of a layer between two stretches to a path, and its upper edges to another. */
function outline(
  { path, edges }: { path: Path2D; edges: Path2D },
  parts: Stretch[],
  below: Float64Array,
  [from, to]: [number, number],
  value: (part: Stretch) => number,
  y: (value: number) => number,
): void {
  const first = parts[from];
  if (!first) return;
  path.moveTo(first.from, y(below[from] ?? 0));
  for (let at = from; at < to; at++) {
    const part = parts[at] as Stretch;
    const top = y((below[at] ?? 0) + value(part));
    path.lineTo(part.from, top);
    path.lineTo(part.to, top);
    edges.moveTo(part.from, top);
    edges.lineTo(part.to, top);
  }
  for (let at = to - 1; at >= from; at--) {
    const part = parts[at] as Stretch;
    path.lineTo(part.to, y(below[at] ?? 0));
    path.lineTo(part.from, y(below[at] ?? 0));
  }
  path.closePath();
}

/** Returns the layer at a time and a value; -1 for none. */
export function layerAt(layers: Layers, time: number, value: number): number {
  const at = lastUpTo(layers.times, time);
  if (at < 0 || value < 0) return -1;
  let below = 0;
  return layers.names.findIndex((_, layer) => {
    below += layers.value(layer, at);
    return value < below;
  });
}
