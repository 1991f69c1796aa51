// Shows the output of the command and scrolls to the line at the cursor of the timelines.

import type { Output } from "./data";
import type { Host } from "./host";
import { type Cursor, lastUpTo } from "./cursor";
import { make, section } from "./dom";
import { duration } from "./format";

/** Output that can be updated while it grows. */
export interface OutputView {
  element: HTMLElement;
  update(host: Host, output: Output): Promise<void>;
}

export async function outputSection(host: Host, output: Output, cursor: Cursor): Promise<OutputView> {
  let times = new Float64Array();
  const pane = make("div", { class: "output", tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Output" });
  let lines: HTMLElement[] = [];
  let shown: Output | null = null;
  const update = async (host: Host, output: Output) => {
    const [at, streams] = await Promise.all([host.numbers(output.times), host.numbers(output.streams)]);
    times = at as Float64Array<ArrayBuffer>;
    // A reader at the end stays at the end.
    const isAtEnd = pane.scrollHeight - pane.scrollTop - pane.clientHeight < 4;
    const before = shown;
    const grew = before?.gap === null && output.gap === null && before.lines.every((line, at) => line === output.lines[at]);
    if (!grew) {
      pane.replaceChildren();
      lines = [];
    }
    for (let at = lines.length; at < output.lines.length; at++) {
      if (at === output.gap) pane.append(make("p", { class: "gap" }, "… lines omitted …"));
      const time = make("span", { class: "when" }, `+${duration(times[at] ?? 0)}`);
      const line = make("p", { class: streams[at] === 2 ? "stderr" : "stdout" }, time, make("span", {}, output.lines[at] ?? ""));
      pane.append(line);
      lines.push(line);
    }
    if (isAtEnd && before) pane.scrollTop = pane.scrollHeight;
    shown = output;
    note.textContent = `${output.note} Point at a timeline to see the output at that time.`;
  };
  let current: HTMLElement | undefined;
  cursor.onMove((time) => {
    const line = lines[lastUpTo(times, time)];
    if (line === current) return;
    current?.classList.remove("now");
    current = line;
    if (!line) return;
    line.classList.add("now");
    // Scrolls the pane and never the page.
    pane.scrollTop = line.offsetTop - pane.clientHeight / 2;
  });
  const note = make("p", { class: "note" });
  await update(host, output);
  return { element: section("output", "Output", "", note, pane), update };
}
