// Timelines: step functions over time, with marks, the peak and dots for stacks.

import uPlot from "uplot";
import type { Chart, Document, Dot } from "./data";
import type { Host } from "./host";
import { type Steps, align } from "./align";
import { Cursor, lastUpTo } from "./cursor";
import { Detail } from "./detail";
import { make, section, style } from "./dom";
import { bytes, elapsed, seconds, shortBytes } from "./format";
import { onColors } from "./theme";

const NS = 1e9;
const COLORS = 10;
/** Minimum distance between names of marks, in pixels. */
const MARK_GAP = 60;
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
  /** Dots to draw. */
  dots: Dot[];
  /** Called when the reader clicks a dot. */
  choose: (dot: Dot) => void;
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
  const { chart, data, id } = props;
  const lines = await load(props);
  // Saved here, because drawing resets the zoom of the page.
  const { zoomed } = props.cursor;
  const aligned = align(lines);
  // Shared with the plot and refilled in place, so that all users see the current data.
  const times = aligned.times.map((time) => time / NS);
  const box = make("div", { class: "chart" });
  // The first timeline is that of events if there are any.
  const travel = data.snapshots || (props.host.snapshots && data.charts[0]?.title === LIVE_BYTES)
    ? " Click to select an instant, Shift+click to compare; keyboard: Enter, Shift+Enter."
    : "";
  const help = `Drag to zoom, double-click to show all; keyboard: arrows move, + and - zoom, 0 shows all.${travel}`;
  const tools = make("div", { class: "tools" });
  // Only the first timeline explains the controls.
  const withHelp = (text: string) => (chart === data.charts[0] ? `${text} ${help}` : text);
  const note = make("p", { class: "note" }, withHelp(chart.note));
  const element = section(id, chart.title, "", box, tools, note);
  if (times.length === 0) {
    box.append(make("p", {}, "No data."));
    const update: ChartView["update"] = async ({ chart }) => chart.series.every(({ times }) => times.length === 0);
    return { element, update, end: () => undefined };
  }
  const last = Math.max(data.span / NS, times[times.length - 1] as number);
  const first = Math.min(props.begin / NS, times[0] as number);
  const all: Scope = { min: first, max: last > first ? last : first + 1e-6 };
  const maximum = maximumBetween(props, times, aligned.values);
  const dotLayer = new DotLayer(props, times, aligned.values[0] ?? []);
  const plot = new uPlot(
    options(props, all, maximum, times, [overlay(props), dotLayer.plugin()]),
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
    if (box.clientWidth > 0) plot.setSize({ width: box.clientWidth, height: height() });
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
    const names = ({ title, series }: Chart) => [title, ...series.map(({ name }) => name)].join("\n");
    if (names(next.chart) !== names(props.chart)) return false;
    Object.assign(props, next);
    const base = await load(props);
    const isWhole = updateView();
    all.max = Math.max(next.data.span / NS, ...base.map(({ times }) => (times[times.length - 1] ?? 0) / NS), 1e-6);
    detail.rebase(next.host, next.chart, base);
    if (isWhole) plot.setScale("x", { ...all });
    dotLayer.refill(plot);
    updateView();
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

function height(): number {
  return Math.max(220, Math.min(380, Math.round(window.innerHeight * 0.42)));
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
    width: 600,
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
      { ...axis, values: (_, ticks) => ticks.map((tick) => axisTime(tick, ticks)), space: (plot) => (plot.width < 500 ? 56 : 80) },
      { ...axis, values: (_, ticks) => ticks.map(shortBytes), size: 76, splits: (_, __, low, high) => byteTicks(low, high) },
    ],
    series: [
      { label: "time", value: (plot) => (cursorTime(plot) === null ? "-" : seconds(cursorTime(plot) as number, all.max)) },
      ...props.chart.series.map((series, at) => ({
        label: series.name,
        paths: stepped,
        stroke: () => color(at),
        fill: at === 0 ? () => style("--fill") : undefined,
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

/** Returns ticks at multiples of a power of two. */
function byteTicks(low: number, high: number): number[] {
  const rough = (high - low) / 5;
  const power = 2 ** Math.floor(Math.log2(Math.max(rough, 1)));
  const step = rough > power * 1.5 ? power * 2 : power;
  const ticks: number[] = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return ticks;
}

function axisTime(tick: number, ticks: number[]): string {
  const step = ticks.length > 1 ? Math.abs((ticks[1] as number) - (ticks[0] as number)) : 1;
  const [unit, name] = step >= 0.1 ? [1, "s"] : step >= 1e-4 ? [1e-3, "ms"] : [1e-6, "µs"];
  // As many digits as the step needs.
  let digits = 0;
  while (digits < 6 && Math.abs((step / unit) * 10 ** digits - Math.round((step / unit) * 10 ** digits)) > 1e-3) digits++;
  return `${(tick / unit).toFixed(digits)} ${name}`;
}

/** Draws marks, selected instants and the peak. */
function overlay(props: ChartProps): uPlot.Plugin {
  const draw = (plot: uPlot) => {
    const { chart, data, cursor } = props;
    const { ctx } = plot;
    const ratio = uPlot.pxRatio;
    const { left, top, width, height } = plot.bbox;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.font = `${11 * ratio}px ${style("--sans") || "sans-serif"}`;
    // Drawing the axes changes these.
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.lineWidth = ratio;
    ctx.setLineDash([4 * ratio, 3 * ratio]);
    ctx.strokeStyle = ctx.fillStyle = style("--mark");
    const line = (x: number) => {
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
      ctx.stroke();
    };
    const isVisible = (x: number) => x >= left && x <= left + width;
    const marks = data.marks.map(({ time, name }) => ({ name, x: plot.valToPos(time / NS, "x", true) })).filter(({ x }) => isVisible(x));
    for (const { x } of marks) line(x);
    let free = -Infinity;
    for (const { name, x } of marks) {
      if (x <= free) continue;
      const text = name.length > 24 ? `${name.slice(0, 23)}…` : name;
      const wide = ctx.measureText(text).width + 6 * ratio;
      const isLast = x + wide > left + width;
      // At the right edge the name is to the left of its line, if there is room.
      if (!isLast) write(ctx, text, x + 3 * ratio, top + 12 * ratio);
      else if (x - wide > free) write(ctx, text, x - wide + 3 * ratio, top + 12 * ratio);
      free = x + Math.max(MARK_GAP * ratio, wide);
    }
    ctx.setLineDash([]);
    ctx.strokeStyle = ctx.fillStyle = style("--link");
    for (const { time, letter } of cursor.selected) {
      const x = plot.valToPos(time / NS, "x", true);
      if (!isVisible(x)) continue;
      line(x);
      const room = ctx.measureText(letter).width + 6 * ratio;
      write(ctx, letter, x + room > left + width ? x - room : x + 3 * ratio, top + height - 4 * ratio);
    }
    const x = chart.peak ? plot.valToPos(chart.peak.time / NS, "x", true) : NaN;
    // Without this check the name of an invisible peak could be visible.
    if (chart.peak && isVisible(x)) {
      const y = plot.valToPos(chart.peak.bytes, "y", true);
      ctx.fillStyle = ctx.strokeStyle = style("--bad");
      ctx.beginPath();
      ctx.arc(x, y, 4 * ratio, 0, 2 * Math.PI);
      ctx.fill();
      const text = `peak ${bytes(chart.peak.bytes)}`;
      const room = ctx.measureText(text).width + 8 * ratio;
      write(ctx, text, x + room > left + width ? x - room : x + 8 * ratio, y - 6 * ratio);
    }
    ctx.restore();
  };
  return { hooks: { draw } };
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

/** Describes the stacks of a moment in a line. */
function dotLabel({ threads, omitted, reason }: Dot): string {
  const more = threads.length + omitted - 1;
  return `Stack of ${threads[0]?.who ?? "a thread"}${more > 0 ? ` and of ${more} more` : ""}, ${reason}`;
}

/** Stacks as buttons over the line, one for each moment, so that they are accessible by keyboard. */
class DotLayer {
  private buttons: { dot: Dot; value: number; button: HTMLButtonElement }[];

  constructor(
    private props: ChartProps,
    private times: number[],
    private values: (number | null)[],
  ) {
    this.buttons = this.createButtons();
  }

  /** Replaces the dots by those of a newer document. */
  refill(plot: uPlot): void {
    const same = (a: Dot, b: Dot) => a.time === b.time;
    const chosen = this.buttons.find(({ button }) => button.classList.contains("chosen"))?.dot;
    this.buttons.forEach(({ button }) => button.remove());
    this.buttons = this.createButtons();
    for (const { dot, button } of this.buttons) {
      button.classList.toggle("chosen", chosen !== undefined && same(dot, chosen));
      plot.over.append(button);
    }
    this.place(plot);
  }

  private createButtons(): { dot: Dot; value: number; button: HTMLButtonElement }[] {
    const { props, times, values } = this;
    return props.dots.map((dot) => {
      const value = values[lastUpTo(times, dot.time / NS)] ?? 0;
      const label = dotLabel(dot);
      const button = make("button", { type: "button", class: "dot", title: label, "aria-label": label });
      const choose = () => {
        for (const other of this.buttons) other.button.classList.toggle("chosen", other.button === button);
        props.choose(dot);
      };
      button.addEventListener("click", choose);
      // Pressing a dot must not start a zoom.
      button.addEventListener("mousedown", (event) => event.stopPropagation());
      return { dot, value, button };
    });
  }

  plugin(): uPlot.Plugin {
    return {
      hooks: {
        init: (plot) => this.buttons.forEach(({ button }) => plot.over.append(button)),
        draw: (plot) => this.place(plot),
      },
    };
  }

  private place(plot: uPlot): void {
    for (const { dot, value, button } of this.buttons) {
      const x = plot.valToPos(dot.time / NS, "x");
      button.hidden = x < 0 || x > plot.over.clientWidth;
      button.style.left = `${x}px`;
      button.style.top = `${plot.valToPos(value, "y")}px`;
    }
  }
}
