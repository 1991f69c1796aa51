// Ticks and labels of the axes of a timeline.

/** Returns ticks at multiples of a power of two. */
export function byteTicks(low: number, high: number): number[] {
  const rough = (high - low) / 5;
  const power = 2 ** Math.floor(Math.log2(Math.max(rough, 1)));
  const step = rough > power * 1.5 ? power * 2 : power;
  const ticks: number[] = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return ticks;
}

export function axisTime(tick: number, ticks: number[]): string {
  const step = ticks.length > 1 ? Math.abs((ticks[1] as number) - (ticks[0] as number)) : 1;
  const [unit, name] = step >= 0.1 ? [1, "s"] : step >= 1e-4 ? [1e-3, "ms"] : [1e-6, "µs"];
  // As many digits as the step needs.
  let digits = 0;
  while (digits < 6 && Math.abs((step / unit) * 10 ** digits - Math.round((step / unit) * 10 ** digits)) > 1e-3) digits++;
  return `${(tick / unit).toFixed(digits)} ${name}`;
}
