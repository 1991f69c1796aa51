// What a command wrote; follows the cursor of the timelines.

import type { Output } from "./data";
import type { Host } from "./host";
import { type Cursor, lastUpTo } from "./cursor";
import { make, section } from "./dom";
import { duration } from "./format";

export async function outputSection(host: Host, output: Output, cursor: Cursor): Promise<HTMLElement> {
  const [times, streams] = await Promise.all([host.numbers(output.times), host.numbers(output.streams)]);
  const pane = make("div", { class: "output", tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Output" });
  const lines = output.lines.map((text, at) => {
    if (at === output.gap) pane.append(make("p", { class: "gap" }, "… lines are left out here …"));
    const time = make("span", { class: "when" }, `+${duration(times[at] ?? 0)}`);
    const line = make("p", { class: streams[at] === 2 ? "stderr" : "stdout" }, time, make("span", {}, text));
    pane.append(line);
    return line;
  });
  let current: HTMLElement | undefined;
  cursor.follow((time) => {
    const line = lines[lastUpTo(times, time)];
    if (line === current) return;
    current?.classList.remove("now");
    current = line;
    if (!line) return;
    line.classList.add("now");
    // Only the pane moves, never the page.
    pane.scrollTop = line.offsetTop - pane.clientHeight / 2;
  });
  return section("output", "Output", `${output.note} Point at a timeline to see what was written then.`, pane);
}
