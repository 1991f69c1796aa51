// Brings several step functions onto one axis.

export interface Steps {
  times: Float64Array;
  values: Float64Array;
}

/**
 * All instants of all lines, and the value of each line there: none before its first, then the latest,
 * and none after one that ended with nothing.
 * Several points of one instant stay several, in their order.
 */
export function align(lines: Steps[]): { times: number[]; values: (number | null)[][] } {
  const at = lines.map(() => 0);
  const held: (number | null)[] = lines.map(() => null);
  const times: number[] = [];
  const values: (number | null)[][] = lines.map(() => []);
  for (;;) {
    let next = Infinity;
    lines.forEach((line, index) => {
      next = Math.min(next, line.times[at[index] as number] ?? Infinity);
    });
    if (next === Infinity) return { times, values };
    lines.forEach((line, index) => {
      const place = at[index] as number;
      if (line.times[place] === next) {
        held[index] = line.values[place] as number;
        at[index] = place + 1;
      } else if (place === line.times.length && held[index] === 0) held[index] = null;
    });
    times.push(next);
    values.forEach((list, index) => list.push(held[index] ?? null));
  }
}
