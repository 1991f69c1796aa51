// Shows stacks, innermost frame first.

import type { Document, Dot, DotThread } from "./data";
import { make } from "./dom";

export function stackList(data: Document, stack: number | string[]): HTMLElement {
  const frames = typeof stack === "number" ? (data.stacks[stack] ?? []).map((at) => data.strings[at] ?? "?") : stack;
  if (frames.length === 0) return make("p", { class: "note" }, "No frames were recorded.");
  const list = make("ol", { class: "stack" });
  for (const frame of frames) list.append(make("li", {}, frame));
  return list;
}

/** Shows the threads of a moment: those that work, and folded those that wait. */
export function threadStacks(data: Document, { threads, omitted }: Dot): HTMLElement[] {
  const show = ({ who, stack }: DotThread) => [make("h4", {}, who), stackList(data, stack)];
  // The first thread is shown even if it waits.
  const isFolded = ({ waits }: DotThread, at: number) => waits && at > 0;
  const waiting = threads.filter(isFolded);
  const shown = threads.filter((thread, at) => !isFolded(thread, at)).flatMap(show);
  if (waiting.length > 0) {
    const name = waiting.length === 1 ? "1 waiting thread" : `${waiting.length} waiting threads`;
    shown.push(make("details", { class: "waiting" }, make("summary", {}, name), ...waiting.flatMap(show)));
  }
  if (omitted > 0) shown.push(make("p", { class: "note" }, `${omitted} more threads are left out.`));
  return shown;
}
