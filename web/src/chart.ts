// Timelines: step functions over time, with marks, the peak and dots for stacks.

import uPlot from "uplot";
import type { Chart, Document, Dot } from "./data";
import type { Host } from "./host";
import { type Steps, align } from "./align";
import { Cursor, lastUpTo } from "./cursor";
import { Detail } from "./detail";
import { make, section, style } from "./dom";
import { axisTime, byteTicks } from "./axis";
import type { BreakdownView } from "./breakdown";
import { DotLayer } from "./dots";
import { bytes, elapsed, seconds, shortBytes } from "./format";
import { overlay } from "./overlay";
import { layersOfLines } from "./stacked";
import { onColors } from "./theme";

const NS = 1e9;
const COLORS = 10;
/** A ceiling is near if it is at most this many times the highest value. */
const NEAR = 1.6;
/** Title of the timeline in which instants can be selected; `crates/view/src/html` writes it. */
export const LIVE_BYTES = "Live bytes";

export interface ChartProps {
  host: Host;
  data: Document;
  chart: Chart;
  id: string;
  cursor: Cursor;
  /** Start of all timelines of the page, in nanoseconds since the origin. */
  begin: number;
  /** Width in pixels before it is laid out. */
  width: number;
  /** Dots to draw. */
  dots: Dot[];
  /** Called when the reader clicks a dot. */
  choose: (dot: Dot) => void;
  /** Divides the area below the first line; null if it cannot be divided. */
  breakdown: BreakdownView | null;
}

/** A timeline that can be updated while it grows. */
export interface ChartView {
  element: HTMLElement;
  /** Shows newer data; returns `false` if a new timeline is needed. */
  update(next: Pick<ChartProps, "host" | "data" | "chart" | "dots">): Promise<boolean>;
  /** Removes all listeners. */
  end(): void;
}

/** A range of seconds since the origin. */
interface Scope {
  min: number;
  max: number;
}

function load({ host, chart }: ChartProps): Promise<Steps[]> {
  return Promise.all(
    chart.series.map(async (series) => ({
      times: await host.numbers(series.times),
      values: await host.numbers(series.values),
    })),
  );
}

export async function chartSection(props: ChartProps): Promise<ChartView> {
  const { chart, data, id, breakdown } = props;
  const lines = await load(props);
  // Saved here, because drawing resets the zoom of the page.
  const { zoomed } = props.cursor;
  const aligned = align(lines);
  // Shared with the plot and refilled in place, so that all users see the current data.
  const times = aligned.times.map((time) => time / NS);
  const box = make("div", { class: "chart" });
  const field = make("div", { class: "field" }, box, breakdown?.legend);
  // The first timeline is that of events if there are any.
  const travel = data.snapshots || (props.host.snapshots && data.charts[0]?.title === LIVE_BYTES)
    ? " Click to select an instant, Shift+click to compare; keyboard: Enter, Shift+Enter."
    : "";
  const help = `Drag to zoom, double-click to show all; keyboard: arrows move, + and - zoom, 0 shows all.${travel}`;
  const tools = make("div", { class: "tools" }, breakdown?.choice ?? make("span", { class: "choice" }, chart.title));
  // Only the first timeline explains the controls.
  const withHelp = (text: string) => (chart === data.charts[0] ? `${text} ${help}` : text);
  const note = make("p", { class: "note" }, withHelp(chart.note));
  const element = section(id, chart.title, "", tools, field, note);
  if (times.length === 0) {
    box.append(make("p", {}, "No data."));
    const update: ChartView["update"] = async ({ chart }) => chart.series.every(({ times }) => times.length === 0);
    return { element, update, end: () => undefined };
  }
  const { parts } = chart;
  const names = chart.series.map(({ name }) => name);
  if (breakdown && parts) await breakdown.updateLines(parts.by, () => layersOfLines(names, times, aligned.values, parts.from));
  const last = Math.max(data.span / NS, times[times.length - 1] as number);
  const first = Math.min(props.begin / NS, times[0] as number);
  const all: Scope = { min: first, max: last > first ? last : first + 1e-6 };
  const maximum = maximumBetween(props, times, aligned.values);
  const dotLayer = new DotLayer(props, times, aligned.values[0] ?? []);
  const plot = new uPlot(
    options(props, all, maximum, times, [...(breakdown ? [breakdown.plugin()] : []), overlay(props), dotLayer.plugin()]),
    [times, ...aligned.values] as uPlot.AlignedData,
    box,
  );
  plot.setScale("x", all);
  const isAll = (part: Scope) => part.min <= all.min && part.max >= all.max;
  const zoom = (min: number, max: number) => {
    const low = Math.max(all.min, min);
    const high = Math.min(all.max, max);
    if (high - low > 2e-9) plot.setScale("x", { min: low, max: high });
  };
  const showAll = () => plot.setScale("x", all);
  const removeZoom = props.cursor.onZoom(element, (span) => (span ? zoom(span.from / NS, span.to / NS) : showAll()));
  // All timelines of a page show the same range.
  const zoomAll = (min: number, max: number) => props.cursor.zoom({ from: min * NS, to: max * NS });
  const scale = (factor: number, around?: number) => {
    const { min = all.min, max = all.max } = plot.scales.x as Partial<Scope>;
    const center = around ?? (min + max) / 2;
    zoomAll(center - (center - min) * factor, center + (max - center) * factor);
  };
  const button = (label: string, act: () => void) => make("button", { type: "button", click: act }, label);
  const { peak } = chart;
  const detail = new Detail(id, props.host, chart, lines, (steps, text) => {
    const { min = all.min, max = all.max } = plot.scales.x as Partial<Scope>;
    const now = align(steps);
    refill(times, now.times.map((time) => time / NS));
    now.values.forEach((list, at) => refill(aligned.values[at] ?? [], list));
    plot.setData([times, ...aligned.values] as uPlot.AlignedData, false);
    plot.setScale("x", { min, max });
    note.textContent = withHelp(text);
  });
  const updateView = () => {
    const { min = all.min, max = all.max } = plot.scales.x as Partial<Scope>;
    const isWhole = isAll({ min, max });
    props.cursor.zoomed = isWhole ? null : { from: min * NS, to: max * NS };
    if (isWhole) detail.clear();
    else detail.request({ from: min * NS, to: max * NS }, { from: all.min * NS, to: all.max * NS });
    return isWhole;
  };
  plot.hooks.setScale?.push((_, key) => key === "x" && updateView());
  tools.append(
    button("Show all", () => props.cursor.zoom(null)),
    button("Zoom in", () => scale(0.5)),
    button("Zoom out", () => scale(2)),
  );
  if (peak) {
    const around = () => {
      const at = (props.chart.peak ?? peak).time / NS;
      const width = (all.max - all.min) / 40;
      zoomAll(at - width, at + width);
    };
    tools.append(button("Zoom to peak", around));
  }
  box.addEventListener("keydown", (event) => {
    const time = cursorTime(plot);
    if (event.key === "Enter" && time !== null) props.cursor.pick(time * NS, event.shiftKey ? "compare" : "select");
    else keys(event, plot, times, scale, () => props.cursor.zoom(null));
  });
  if (chart.title === LIVE_BYTES) {
    props.cursor.highestInView = () => {
      const { min = all.min, max = all.max } = plot.scales.x as Partial<Scope>;
      return timeOfMaximum(times, aligned.values[0] ?? [], min, max);
    };
  }
  listenForPicks(plot, props.cursor);
  const removeSelection = props.cursor.onSelection(() => plot.redraw(false, false));
  plot.over.addEventListener(
    "wheel",
    (event) => {
      // Without a modifier the wheel scrolls the page.
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      scale(event.deltaY < 0 ? 0.8 : 1.25, plot.posToVal(event.offsetX, "x"));
    },
    { passive: false },
  );
  plot.over.tabIndex = 0;
  plot.over.setAttribute("role", "application");
  const peakText = peak ? `Peak ${bytes(peak.bytes)} at ${elapsed(peak.time)}.` : "";
  plot.over.setAttribute("aria-label", `${chart.title} over time. ${peakText} ${help}`);
  const resize = () => {
    if (box.clientWidth === 0) return;
    plot.setSize({ width: box.clientWidth, height: height() });
  };
  const sizes = new ResizeObserver(resize);
  sizes.observe(box);
  const removeColors = onColors(() => {
    plot.redraw(false, false);
    // uPlot sets the colors of its legend only once.
    box.querySelectorAll<HTMLElement>(".u-marker").forEach((marker, at) => {
      if (at > 0) marker.style.borderColor = color(at - 1);
      if (at === 1) marker.style.background = style("--fill");
    });
  });
  const update: ChartView["update"] = async (next) => {
    const key = ({ title, series }: Chart) => [title, ...series.map(({ name }) => name)].join("\n");
    if (key(next.chart) !== key(props.chart)) return false;
    Object.assign(props, next);
    const base = await load(props);
    const isWhole = updateView();
    all.max = Math.max(next.data.span / NS, ...base.map(({ times }) => (times[times.length - 1] ?? 0) / NS), 1e-6);
    detail.rebase(next.host, next.chart, base);
    if (isWhole) plot.setScale("x", { ...all });
    dotLayer.refill(plot);
    updateView();
    if (parts) await breakdown?.reload();
    return true;
  };
  const end = () => {
    removeSelection();
    removeZoom();
    removeColors();
    sizes.disconnect();
    plot.destroy();
    detail.end();
  };
  if (zoomed) zoom(zoomed.from / NS, zoomed.to / NS);
  return { element, update, end };
}

/** Replaces a timeline by another one and keeps the focus. */
export function replaceChart(old: ChartView, next: ChartView): void {
  const parts = ({ element }: ChartView) => [...element.querySelectorAll<HTMLElement>(".u-over, .tools button")];
  const focused = parts(old).findIndex((part) => part === document.activeElement);
  old.end();
  old.element.replaceWith(next.element);
  parts(next)[focused]?.focus({ preventScroll: true });
}

function refill<T>(list: T[], values: T[]): void {
  list.length = 0;
  for (const value of values) list.push(value);
}

/** Picks an instant on a click; a drag zooms instead. */
function listenForPicks(plot: uPlot, cursor: Cursor): void {
  let pressed = -1;
  plot.over.addEventListener("mousedown", (event) => (pressed = event.offsetX));
  plot.over.addEventListener("click", (event) => {
    if (event.target !== plot.over || Math.abs(event.offsetX - pressed) > 3) return;
    cursor.pick(plot.posToVal(event.offsetX, "x") * NS, event.shiftKey ? "compare" : "select");
  });
}

/** Returns the height of a timeline: in a large window the rest of the page has room below it. */
function height(): number {
  const isLarge = window.innerWidth >= 1000 && window.innerHeight >= 600;
  return isLarge ? Math.max(160, Math.min(440, Math.round(window.innerHeight * 0.27))) : 230;
}

function keys(event: KeyboardEvent, plot: uPlot, times: number[], scale: (factor: number) => void, all: () => void): void {
  const { min = 0, max = 1 } = plot.scales.x as Partial<Scope>;
  const step = event.shiftKey ? 0.1 : 0.01;
  const left = plot.cursor.left ?? -1;
  const width = plot.over.clientWidth;
  const move = (by: number) => {
    const from = left < 0 ? width / 2 : left;
    plot.setCursor({ left: Math.max(0, Math.min(width, from + by * width)), top: 10 }, true);
  };
  switch (event.key) {
    case "ArrowLeft":
      move(-step);
      break;
    case "ArrowRight":
      move(step);
      break;
    case "+":
      scale(0.5);
      break;
    case "-":
      scale(2);
      break;
    case "0":
      all();
      break;
    default:
      return;
  }
  if (max > min && times.length > 0) event.preventDefault();
}

function options(props: ChartProps, all: Scope, maximum: Maximum, times: number[], plugins: uPlot.Plugin[]): uPlot.Options {
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  const axis = { stroke: () => style("--text"), grid: { stroke: () => style("--line"), width: 1 }, ticks: { stroke: () => style("--line"), width: 1 } };
  const value = (_: uPlot, raw: number | null) => (raw === null ? "-" : bytes(raw));
  let visible: [number, number] = [all.min, all.max];
  return {
    width: props.width,
    height: height(),
    plugins,
    cursor: {
      drag: { x: true, y: false, setScale: true },
      points: { show: false },
      // The cursors of all timelines move together.
      sync: { key: "floodmark", scales: ["x", null] },
      bind: {
        dblclick: () => () => (props.cursor.zoom(null), null),
        // Also over a dot, whose events uPlot would ignore.
        mousemove: (_, __, handle) => (event) => (handle(event), null),
      },
      // A value is valid until the next one, so the last one before the cursor counts and not the nearest.
      dataIdx: (_, __, ___, time) => {
        const at = lastUpTo(times, time);
        return at < 0 ? null : at;
      },
    },
    scales: {
      x: {
        time: false,
        range: (_, min, max) => (visible = min === null || min === max ? [all.min, all.max] : [min, max]),
      },
      // Fits the visible range, which uPlot's own x scale has only after all scales are set.
      y: { range: () => [0, maximum(...visible) * 1.14] },
    },
    axes: [
      { ...axis, size: 34, values: (_, ticks) => ticks.map((tick) => axisTime(tick, ticks)), space: (plot) => (plot.width < 500 ? 56 : 80) },
      { ...axis, values: (_, ticks) => ticks.map(shortBytes), size: 76, splits: (_, __, low, high) => byteTicks(low, high) },
    ],
    series: [
      { label: "time", value: (plot) => (cursorTime(plot) === null ? "-" : seconds(cursorTime(plot) as number, all.max)) },
      ...props.chart.series.map((series, at) => ({
        label: series.name,
        paths: stepped,
        // Lines that are drawn as areas are not drawn again.
        stroke: () => (props.breakdown?.isDrawn && at >= (props.chart.parts?.from ?? Infinity) ? "transparent" : color(at)),
        fill: at === 0 ? () => (props.breakdown?.isDrawn ? "transparent" : style("--fill")) : undefined,
        width: at === 0 ? 1.5 : 1,
        points: { show: false },
        value,
      })),
    ],
    hooks: {
      setScale: [
        (plot, key) => {
          const { min, max } = plot.scales.x ?? {};
          if (key === "x" && typeof min === "number" && typeof max === "number") {
            props.cursor.setView(min * NS, max * NS);
          }
        },
      ],
      setSize: [() => props.cursor.resize()],
      setCursor: [
        (plot) => {
          const time = cursorTime(plot);
          if (time === null) return;
          // uPlot updates its legend only when the value changes, but the time changes with every move.
          plot.setLegend({}, false);
          props.cursor.move(time * NS);
        },
      ],
    },
  };
}

/** Returns the time under the cursor in seconds; null if the cursor is elsewhere. */
function cursorTime(plot: uPlot): number | null {
  const { left } = plot.cursor;
  return left === undefined || left === null || left < 0 ? null : plot.posToVal(left, "x");
}

/** Returns the highest value between two times. */
type Maximum = (from: number, to: number) => number;

function maximumBetween(props: ChartProps, times: number[], values: (number | null)[][]): Maximum {
  return (from, to) => {
    const { peak } = props.chart;
    const isVisible = peak && peak.time / NS >= from && peak.time / NS <= to;
    let maximum = isVisible ? peak.bytes : 1;
    const first = Math.max(0, lastUpTo(times, from));
    const last = lastUpTo(times, to);
    for (const list of values) {
      for (let at = first; at <= last; at++) maximum = Math.max(maximum, list[at] ?? 0);
    }
    // A ceiling that is near is shown; one that is far would leave no room for the lines.
    for (const { bytes: size } of props.chart.ceilings) if (size <= maximum * NEAR) maximum = Math.max(maximum, size);
    return maximum;
  };
}

/** Returns the time of the highest value between two times, in nanoseconds since the origin. */
function timeOfMaximum(times: number[], values: (number | null)[], from: number, to: number): number | null {
  const first = Math.max(0, lastUpTo(times, from));
  let best = first;
  for (let at = first; at <= lastUpTo(times, to); at++) if ((values[at] ?? 0) > (values[best] ?? 0)) best = at;
  const time = times[best];
  return time === undefined ? null : Math.max(time, from) * NS;
}

function color(at: number): string {
  return style(`--series-${at % COLORS}`);
}
