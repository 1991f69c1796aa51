// Merges several step functions onto one time axis.

export interface Steps {
  times: Float64Array;
  values: Float64Array;
}

/**
 * Returns the times of all lines and the value of each line at each of them: null before its first point, then the
 * latest value, and null again after a line that ended with 0. Several points at one time stay several, in order.
 */
export function align(lines: Steps[]): { times: number[]; values: (number | null)[][] } {
  const next = lines.map(() => 0);
  const latest: (number | null)[] = lines.map(() => null);
  const times: number[] = [];
  const values: (number | null)[][] = lines.map(() => []);
  for (;;) {
    let time = Infinity;
    lines.forEach((line, index) => {
      time = Math.min(time, line.times[next[index] as number] ?? Infinity);
    });
    if (time === Infinity) return { times, values };
    lines.forEach((line, index) => {
      const point = next[index] as number;
      if (line.times[point] === time) {
        latest[index] = line.values[point] as number;
        next[index] = point + 1;
      } else if (point === line.times.length && latest[index] === 0) latest[index] = null;
    });
    times.push(time);
    values.forEach((list, index) => list.push(latest[index] ?? null));
  }
}
