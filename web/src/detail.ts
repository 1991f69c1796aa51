// Replaces the visible range of a timeline by a more detailed one, if the host can provide it.

import type { Steps } from "./align";
import type { Span } from "./cursor";
import type { Chart } from "./data";
import type { Host } from "./host";

/** Note of a chart that omits nothing; `crates/view/src/html` writes it. */
const EXACT = "Every change is drawn.";
/** Milliseconds without a change of the view before the host is asked. */
const SETTLE_MS = 150;

interface DetailedRange extends Span {
  note: string;
  lines: Map<string, Steps>;
}

export class Detail {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private range: DetailedRange | null = null;

  constructor(
    private id: string,
    private host: Host,
    private chart: Chart,
    private base: Steps[],
    /** Draws lines with a note that tells how their points were chosen. */
    private draw: (lines: Steps[], note: string) => void,
  ) {}

  /** Continues with a newer document; the detailed range stays. */
  rebase(host: Host, chart: Chart, base: Steps[]): void {
    [this.host, this.chart, this.base] = [host, chart, base];
    this.redraw();
  }

  /** Drops the details, because everything is visible. */
  clear(): void {
    clearTimeout(this.timer);
    if (!this.range) return;
    this.range = null;
    this.redraw();
  }

  /** Stops drawing. */
  end(): void {
    clearTimeout(this.timer);
    this.draw = () => undefined;
  }

  /** Requests details of the visible part, unless they are known. */
  request(part: Span, all: Span): void {
    clearTimeout(this.timer);
    if (!this.host.range || this.chart.note === EXACT) return;
    const { range } = this;
    const isKnown = range && range.from <= Math.max(part.from, all.from) && Math.min(part.to, all.to) <= range.to;
    if (isKnown && range.note === EXACT) return;
    this.timer = setTimeout(() => void this.fetch(part, all), SETTLE_MS);
  }

  private async fetch({ from, to }: Span, all: Span): Promise<void> {
    // The margin keeps the details complete after a small move.
    const margin = (to - from) / 4;
    const span = { from: Math.max(all.from, from - margin), to: Math.min(all.to, to + margin) };
    try {
      const answer = await this.host.range?.(span.from, span.to, this.id);
      const chart = answer?.charts.find(({ title }) => title === this.chart.title);
      if (!answer || !chart) return;
      const lines = await Promise.all(
        chart.series.map(async ({ name, times, values }): Promise<[string, Steps]> => {
          const [at, held] = await Promise.all([answer.numbers(times), answer.numbers(values)]);
          return [name, { times: at, values: held }];
        }),
      );
      this.range = { ...span, note: chart.note, lines: new Map(lines) };
      this.redraw();
    } catch {
      // Another request replaced this one, or the server is gone; the drawn lines stay.
    }
  }

  private redraw(): void {
    const { range } = this;
    const lines = this.base.map((line, at) => {
      const detailed = range?.lines.get(this.chart.series[at]?.name ?? "");
      return range && detailed ? inserted(line, detailed, range.from, range.to) : line;
    });
    this.draw(lines, range?.note ?? this.chart.note);
  }
}

/** Returns `line` with its points between two times replaced by `detailed`. */
function inserted(line: Steps, detailed: Steps, from: number, to: number): Steps {
  let before = 0;
  while (before < line.times.length && (line.times[before] as number) < from) before++;
  let after = before;
  while (after < line.times.length && (line.times[after] as number) <= to) after++;
  const join = (own: Float64Array, other: Float64Array) => {
    const all = new Float64Array(before + other.length + own.length - after);
    all.set(own.subarray(0, before));
    all.set(other, before);
    all.set(own.subarray(after), before + other.length);
    return all;
  };
  return { times: join(line.times, detailed.times), values: join(line.values, detailed.values) };
}
