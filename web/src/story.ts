// The story of a recording in a few sentences. Links in them show the evidence.

import type { Document, Sentence } from "./data";
import { make } from "./dom";
import { DEFAULT_VIEW, fragment } from "./link";

const SEVERITIES = { bad: "Problem", doubtful: "Warning", note: "Note" };
/** Findings that are shown at once; further ones are folded. */
const SHOWN = 4;

function sentence({ parts }: Sentence, isFirst: boolean): HTMLElement {
  const paragraph = make("p", { class: isFirst ? "lead" : "told" });
  for (const { text, to } of parts) {
    if (!to) paragraph.append(text);
    else paragraph.append(make("a", { href: `#${fragment({ ...DEFAULT_VIEW, ...to })}` }, text));
  }
  return paragraph;
}

/** Returns the story, the findings and where times begin. */
export function story(data: Document): HTMLElement[] {
  const told = data.story.map((one, at) => sentence(one, at === 0));
  const parts: HTMLElement[] = [make("section", { id: "story", "aria-label": "What happened" }, ...told)];
  const { findings } = data;
  if (findings.length > 0) {
    const item = ({ level, text }: (typeof findings)[number]) =>
      make("li", { class: level }, make("strong", {}, SEVERITIES[level]), " ", make("span", {}, text));
    const list = make("ul", { class: "findings", "aria-label": "Findings" }, ...findings.slice(0, SHOWN).map(item));
    parts.push(make("section", { id: "findings", "aria-labelledby": "findings-title" }, make("h2", { id: "findings-title" }, "Findings"), list));
    const rest = findings.slice(SHOWN);
    if (rest.length > 0) {
      const more = make("ul", { class: "findings", "aria-label": "More findings" }, ...rest.map(item));
      list.after(make("details", {}, make("summary", {}, `${rest.length} more`), more));
    }
  }
  if (data.origin) parts.push(make("p", { class: "note" }, `Times are relative to ${data.origin}.`));
  return parts;
}
