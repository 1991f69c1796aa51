// Formats figures by the same rules as the command line.

import type { Cell, CellKind } from "./data";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function bytes(count: number): string {
  if (count < 0) return `-${bytes(-count)}`;
  if (count < 1024) return `${Math.round(count)} B`;
  let power = Math.min(6, Math.floor(Math.log2(count) / 10));
  let value = count / 1024 ** power;
  if (value >= 999.95 && power < 6) {
    power += 1;
    value /= 1024;
  }
  return `${value.toFixed(value < 10 ? 2 : 1)} ${UNITS[power]}`;
}

/** Formats a size for an axis, without unnecessary digits. */
export function shortBytes(count: number): string {
  if (count < 1024) return `${Math.round(count)} B`;
  const power = Math.min(6, Math.floor(Math.log2(count) / 10));
  return `${Number((count / 1024 ** power).toFixed(2))} ${UNITS[power]}`;
}

/** Formats a change in bytes with its sign. */
export function change(by: number): string {
  return by < 0 ? `−${bytes(-by)}` : by > 0 ? `+${bytes(by)}` : "no change";
}

export function count(number: number): string {
  return number.toLocaleString("en-US");
}

export function duration(ns: number): string {
  const scaled = (unit: number, name: string) => {
    const value = ns / unit;
    return `${value.toFixed(value < 10 ? 2 : 1)} ${name}`;
  };
  if (ns < 0) return `-${duration(-ns)}`;
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return scaled(1e3, "µs");
  if (ns < 1e9) return scaled(1e6, "ms");
  if (ns < 60e9) return scaled(1e9, "s");
  const pad = (number: number) => String(number).padStart(2, "0");
  const seconds = Math.floor(ns / 1e9);
  if (ns < 3600e9) return `${Math.floor(seconds / 60)}m ${pad(seconds % 60)}s`;
  return `${Math.floor(seconds / 3600)}h ${pad(Math.floor(seconds / 60) % 60)}m`;
}

/** Formats seconds since the origin with as many digits as the span needs. */
export function seconds(value: number, span: number): string {
  const digits = Math.max(0, Math.min(9, 4 - Math.floor(Math.log10(Math.max(span, 1e-9)))));
  return `+${value.toFixed(digits)} s`;
}

export function share(part: number): string {
  const percent = part * 100;
  if (percent <= 0) return "0 %";
  if (percent < 0.1) return "<0.1 %";
  return `${percent.toFixed(percent < 9.95 ? 1 : 0)} %`;
}

export function cell(value: Cell, kind: CellKind): string {
  if (value === null) return "-";
  if (typeof value === "string") return value;
  switch (kind) {
    case "bytes":
      return bytes(value);
    case "change":
      return change(value);
    case "count":
      return count(value);
    case "share":
      return share(value);
    case "duration":
      return duration(value);
    case "time":
      return elapsed(value);
    default:
      return String(value);
  }
}

/** Formats an instant as exact seconds since the origin, as options such as `--at` take it. */
export function elapsed(ns: number): string {
  return `${ns < 0 ? "-" : "+"}${exactSeconds(Math.abs(ns))}`;
}

/** Formats nanoseconds as exact seconds, as the command line parses them. */
export function exactSeconds(ns: number): string {
  const digits = Math.round(ns).toString().padStart(10, "0");
  const fraction = digits.slice(-9).replace(/0+$/, "");
  return `${digits.slice(0, -9)}${fraction ? `.${fraction}` : ""}s`;
}
