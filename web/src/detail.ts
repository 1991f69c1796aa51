// Lines as detailed as the part of them that is in sight allows, from a host that can tell.

import type { Steps } from "./align";
import type { Chart } from "./data";
import type { Host } from "./host";

/** What a chart says when nothing is left out. */
const EXACT = "Every change is drawn.";
/** How long a view has to stand still, in milliseconds. */
const STILL = 150;

/** Nanoseconds since the origin. */
interface Span {
  from: number;
  to: number;
}

interface Found extends Span {
  note: string;
  /** By the names of lines. */
  lines: Map<string, Steps>;
}

export class Detail {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private found: Found | null = null;

  constructor(
    private id: string,
    private host: Host,
    private chart: Chart,
    private base: Steps[],
    /** Draws these lines, and says how their points were chosen. */
    private draw: (lines: Steps[], note: string) => void,
  ) {}

  /** There is more to show; what was looked at stays. */
  rebase(host: Host, chart: Chart, base: Steps[]): void {
    [this.host, this.chart, this.base] = [host, chart, base];
    this.redraw();
  }

  /** All is in sight. */
  leave(): void {
    clearTimeout(this.timer);
    if (!this.found) return;
    this.found = null;
    this.redraw();
  }

  /** Nobody looks any more. */
  end(): void {
    clearTimeout(this.timer);
    this.draw = () => undefined;
  }

  /** A part of all is in sight. */
  look(part: Span, all: Span): void {
    clearTimeout(this.timer);
    if (!this.host.lines || this.chart.note === EXACT) return;
    const { found } = this;
    const isKnown = found && found.from <= Math.max(part.from, all.from) && Math.min(part.to, all.to) <= found.to;
    if (isKnown && found.note === EXACT) return;
    this.timer = setTimeout(() => void this.ask(part, all), STILL);
  }

  private async ask({ from, to }: Span, all: Span): Promise<void> {
    // A little more than is in sight, so that a small move shows no less.
    const margin = (to - from) / 4;
    const range = { from: Math.max(all.from, from - margin), to: Math.min(all.to, to + margin) };
    try {
      const lines = await this.host.lines?.(range.from, range.to, this.id);
      const chart = lines?.charts.find(({ title }) => title === this.chart.title);
      if (!lines || !chart) return;
      const steps = await Promise.all(
        chart.series.map(async ({ name, times, values }): Promise<[string, Steps]> => {
          const [at, held] = await Promise.all([lines.numbers(times), lines.numbers(values)]);
          return [name, { times: at, values: held }];
        }),
      );
      this.found = { ...range, note: chart.note, lines: new Map(steps) };
      this.redraw();
    } catch {
      // Another look took its place, or the server is gone; what is drawn stays.
    }
  }

  private redraw(): void {
    const { found } = this;
    const lines = this.base.map((line, at) => {
      const detailed = found?.lines.get(this.chart.series[at]?.name ?? "");
      return found && detailed ? inserted(line, detailed, found.from, found.to) : line;
    });
    this.draw(lines, found?.note ?? this.chart.note);
  }
}

/** A line with all of another between two instants. */
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
