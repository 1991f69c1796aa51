// Shows a stack, innermost frame first.

import type { Document } from "./data";
import { make } from "./dom";

export function stackList(data: Document, stack: number): HTMLElement {
  const frames = data.stacks[stack] ?? [];
  if (frames.length === 0) return make("p", { class: "note" }, "No frame is known.");
  const list = make("ol", { class: "stack" });
  for (const frame of frames) list.append(make("li", {}, data.strings[frame] ?? "?"));
  return list;
}
