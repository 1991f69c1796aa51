// Shows a stack, innermost frame first.

import type { Document } from "./data";
import { make } from "./dom";

export function stackList(data: Document, stack: number | string[]): HTMLElement {
  const frames = typeof stack === "number" ? (data.stacks[stack] ?? []).map((at) => data.strings[at] ?? "?") : stack;
  if (frames.length === 0) return make("p", { class: "note" }, "No frames were recorded.");
  const list = make("ol", { class: "stack" });
  for (const frame of frames) list.append(make("li", {}, frame));
  return list;
}
