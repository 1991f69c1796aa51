// Shows a document: what is to be known first, timelines, who held memory, tables.

import type { Document, Dot } from "./data";
import { type Host, embedded } from "./host";
import { chartSection } from "./chart";
import { Cursor } from "./cursor";
import { make } from "./dom";
import { seconds } from "./format";
import { mapSections } from "./addresses";
import { outputSection } from "./output";
import { stackList } from "./stack";
import { tableSection } from "./table";
import { themeButton } from "./theme";
import { Travel } from "./travel";

const WORDS = { bad: "Problem", doubtful: "Doubt", note: "Note" };

async function show(host: Host, page: HTMLElement): Promise<void> {
  const data = await host.document();
  const cursor = new Cursor();
  page.append(header(data));
  const main = make("main");
  const chosen = make("aside", { id: "chosen-stack", "aria-live": "polite", hidden: true });
  const choose = (dot: Dot) => {
    const when = seconds(dot.time / 1e9, data.span / 1e9);
    const close = make("button", { type: "button", click: () => (chosen.hidden = true) }, "Close");
    chosen.replaceChildren(make("h3", {}, `${dot.who}, ${when} (${dot.reason})`), close, stackList(data, dot.stack));
    chosen.hidden = false;
  };
  // In the page before they are filled: what is drawn has to know its width.
  page.append(main);
  for (const [at, chart] of data.charts.entries()) {
    const dots = chart.dots ? data.dots : [];
    main.append(await chartSection({ host, data, chart, id: `chart-${at}`, cursor, dots, choose }));
    if (chart.dots) main.append(chosen);
  }
  if (data.output) main.append(await outputSection(host, data.output, cursor));
  if (data.moments) {
    const part = { moments: data.moments, strings: data.strings, numbers: host.numbers };
    const travel = await Travel.begin(host, data, part, cursor);
    main.append(travel.element, ...(await mapSections(data, part, travel.kept, cursor)));
  }
  for (const table of data.tables) if (!table.still || !data.moments) main.append(tableSection(data, table));
  page.append(make("footer", {}, `Made by ${data.program}. This file is complete in itself and asks nothing of any network.`));
  contents(main);
  document.documentElement.dataset.ready = "true";
}

function header(data: Document): HTMLElement {
  const [first, ...rest] = data.summary;
  const name = data.source.split("/").pop() || data.source;
  const head = make(
    "header",
    {},
    make("div", { class: "bar-top" }, make("h1", { title: data.source }, name), themeButton()),
    data.command ? make("p", { class: "command" }, data.command) : null,
    make("p", { class: "lead" }, first ?? ""),
  );
  for (const sentence of rest) head.append(make("p", {}, sentence));
  if (data.origin) head.append(make("p", { class: "note" }, `Times count from ${data.origin}.`));
  if (data.findings.length > 0) {
    const list = make("ul", { class: "findings", "aria-label": "Findings" });
    for (const { level, text } of data.findings) {
      list.append(make("li", { class: level }, make("strong", {}, WORDS[level]), make("span", {}, text)));
    }
    head.append(list);
  }
  return head;
}

/** Links to all sections. */
function contents(main: HTMLElement): void {
  const list = make("nav", { class: "contents", "aria-label": "Contents" });
  for (const section of main.querySelectorAll("section")) {
    list.append(make("a", { href: `#${section.id}` }, section.querySelector("h2")?.textContent ?? section.id));
  }
  main.prepend(list);
}

const page = document.getElementById("page");
if (page) {
  show(embedded, page).catch((error: unknown) => {
    const what = error instanceof Error ? error.message : String(error);
    page.append(make("p", { class: "failed", role: "alert" }, `This page cannot be shown: ${what}`));
    document.documentElement.dataset.ready = "failed";
  });
}
