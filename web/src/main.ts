// Shows a document: what is to be known first, timelines, who held memory, tables.

import type { Document, Dot } from "./data";
import { type Host, embedded } from "./host";
import { type ChartView, LIVE_BYTES, chartSection, replaceChart } from "./chart";
import { Cursor } from "./cursor";
import { make } from "./dom";
import { seconds } from "./format";
import { mapSections } from "./addresses";
import { Instants } from "./instants";
import { Link, NOTHING, type View } from "./link";
import { Live } from "./live";
import { type OutputView, outputSection } from "./output";
import { Server } from "./server";
import { stackList } from "./stack";
import { type TableSection, tableSection } from "./table";
import { themeButton } from "./theme";
import { Travel, failure } from "./travel";

const WORDS = { bad: "Problem", doubtful: "Doubt", note: "Note" };

class Page {
  private cursor = new Cursor();
  private title = make("h1");
  private bar = make("div", { class: "bar-top" }, this.title, themeButton());
  private facts = make("div");
  private main = make("main");
  private list = make("nav", { class: "contents", "aria-label": "Contents" });
  private chosen = make("aside", { id: "chosen-stack", "aria-live": "polite", hidden: true });
  private foot = make("footer");
  private charts = new Map<string, ChartView>();
  private tables = new Map<string, TableSection>();
  private output: OutputView | null = null;
  private travel: Travel | null = null;
  private maps: HTMLElement[] = [];
  /** Says what becomes of the first pick while no instants are kept. */
  private picking = make("p", { class: "lead-in", role: "status", hidden: true });
  private picks = 0;
  private latest: { host: Host; data: Document } | null = null;
  private around: { above: HTMLElement[]; below: HTMLElement[] } = { above: [], below: [] };
  private told = "";
  private drawn: Promise<unknown> = Promise.resolve();
  private link = new Link({ view: () => this.view(), restore: (view) => this.restore(view) }, this.cursor);

  constructor(page: HTMLElement, server: Server | null) {
    this.cursor.onPick((time, pick) => {
      if (this.travel) this.travel.pick(time, pick);
      else void this.firstPick(time);
    });
    // In the page before they are filled: what is drawn has to know its width.
    page.append(make("header", {}, this.bar, this.facts), this.main, this.foot);
    if (!server) return;
    const live = new Live(server, async () => {
      const { host, version } = await server.latest();
      await this.show(host);
      return version;
    });
    this.title.after(live.sign);
  }

  /** Shows a document for the first time, as its address asks for. */
  async open(host: Host): Promise<void> {
    await this.show(host);
    await this.link.begin();
  }

  private view(): View {
    return { ...NOTHING, ...this.travel?.view, span: this.cursor.span };
  }

  private async restore(view: View): Promise<void> {
    if (view.span || this.cursor.span) this.cursor.zoom(view.span);
    const { at } = view;
    if (!this.travel && typeof at === "number" && at <= (this.latest?.data.span ?? 0)) await this.firstPick(at);
    await this.travel?.restore(view);
  }

  /** Shows what there is now; what was shown before stays where it is. One after the other. */
  show(host: Host): Promise<void> {
    const drawn = this.drawn.then(() => this.draw(host));
    this.drawn = drawn.catch(() => undefined);
    return drawn;
  }

  private async draw(host: Host): Promise<void> {
    const data = await host.document();
    this.tell(data);
    this.latest = { host, data };
    const above = [...(await this.timelines(host, data)), await this.outputOf(host, data)];
    await this.travels(host, data);
    this.around = { above: above.filter((section) => section !== null), below: this.tablesOf(data) };
    this.arrange();
    const whole = host.lines ? "It is served by this machine and asks nothing of any other." : "This file is complete in itself and asks nothing of any network.";
    this.foot.textContent = `Made by ${data.program}. ${whole} Its address follows what you look at: who opens it sees the same.`;
  }

  private tell(data: Document): void {
    const { source, command, summary, origin, findings } = data;
    const told = JSON.stringify({ source, command, summary, origin, findings });
    if (told === this.told) return;
    this.told = told;
    this.title.textContent = source.split("/").pop() || source;
    this.title.title = source;
    this.facts.replaceChildren(...facts(data));
  }

  private async timelines(host: Host, data: Document): Promise<HTMLElement[]> {
    const sections: HTMLElement[] = [];
    const begin = await earliest(host, data);
    for (const [at, chart] of data.charts.entries()) {
      const id = `chart-${at}`;
      const dots = chart.dots ? data.dots : [];
      let view = this.charts.get(id);
      if (!view || !(await view.update({ host, data, chart, dots }))) {
        const choose = (dot: Dot) => this.choose(data, dot);
        const next = await chartSection({ host, data, chart, id, begin, cursor: this.cursor, dots, choose });
        if (view) replaceChart(view, next);
        view = next;
      }
      this.charts.set(id, view);
      sections.push(view.element);
      if (chart.dots) sections.push(this.chosen);
    }
    return sections;
  }

  private choose(data: Document, dot: Dot): void {
    const when = seconds(dot.time / 1e9, data.span / 1e9);
    const close = make("button", { type: "button", click: () => (this.chosen.hidden = true) }, "Close");
    this.chosen.replaceChildren(make("h3", {}, `${dot.who}, ${when} (${dot.reason})`), close, stackList(data, dot.stack));
    this.chosen.hidden = false;
  }

  private async outputOf(host: Host, { output }: Document): Promise<HTMLElement | null> {
    if (!output) return null;
    if (this.output) await this.output.update(host, output);
    else this.output = await outputSection(host, output, this.cursor);
    return this.output.element;
  }

  private async travels(host: Host, data: Document): Promise<void> {
    const { moments, strings } = data;
    const part = moments && { moments, strings, numbers: host.numbers };
    if (this.travel) await this.travel.keep(host, data, part);
    else if (part) this.travel = new Travel(host, data, await Instants.load(part), this.cursor, "kept");
    if (part && this.travel?.kept) this.maps = await mapSections(data, part, this.travel.kept, this.cursor);
  }

  /** No instants are kept yet: the one that somebody picks begins. */
  private async firstPick(time: number): Promise<void> {
    const { host, data } = this.latest ?? {};
    if (!host?.moments || data?.charts[0]?.title !== LIVE_BYTES) return;
    const pick = ++this.picks;
    this.picking.textContent = "Looking …";
    this.picking.hidden = false;
    this.arrange();
    try {
      const instants = await Instants.load(await host.moments([Math.round(time)]));
      // Somebody may have picked another instant meanwhile.
      if (pick !== this.picks) return;
      // Or the recording has ended, and instants are kept.
      if (this.travel) this.travel.pick(time, "look");
      else this.travel = new Travel(host, data, instants, this.cursor, "answer");
      this.picking.hidden = true;
    } catch (error) {
      if (pick === this.picks) this.picking.textContent = failure(error);
    }
    this.arrange();
  }

  private tablesOf(data: Document): HTMLElement[] {
    const wanted = data.tables.filter(({ still }) => !still || !data.moments);
    return wanted.map((table) => {
      const known = this.tables.get(table.id);
      if (known) known.update(data, table);
      const section = known ?? tableSection(data, table);
      this.tables.set(table.id, section);
      return section.element;
    });
  }

  /** Puts sections into their order and touches those only that are elsewhere. */
  private arrange(): void {
    const { above, below } = this.around;
    const travel = this.travel ? [this.travel.element, ...this.maps] : [];
    const sections = [...above, ...(this.picking.hidden ? [] : [this.picking]), ...travel, ...below];
    const wanted = [this.list, ...sections];
    for (const old of [...this.main.children]) if (!wanted.includes(old as HTMLElement)) old.remove();
    wanted.forEach((section, at) => {
      const there = this.main.children[at];
      if (there !== section) this.main.insertBefore(section, there ?? null);
    });
    const links = sections.filter(({ id, tagName }) => id && tagName === "SECTION");
    const names = links.map(({ id }) => id).join();
    if (this.list.dataset.names === names) return;
    this.list.dataset.names = names;
    this.list.replaceChildren(...links.map((section) => make("a", { href: `#${section.id}` }, section.querySelector("h2")?.textContent ?? section.id)));
  }
}

/** The first instant that any timeline knows something of. */
async function earliest(host: Host, { charts, marks }: Document): Promise<number> {
  const columns = charts.flatMap(({ series }) => series.map(({ times }) => times)).filter(({ length }) => length > 0);
  const firsts = await Promise.all(columns.map(async (times) => (await host.numbers(times))[0] ?? 0));
  const all = [...firsts, ...marks.map(({ time }) => time)];
  return all.reduce((first, time) => Math.min(first, time), all[0] ?? 0);
}

function facts(data: Document): HTMLElement[] {
  const [first, ...rest] = data.summary;
  const facts: HTMLElement[] = data.command ? [make("p", { class: "command" }, data.command)] : [];
  facts.push(make("p", { class: "lead" }, first ?? ""), ...rest.map((sentence) => make("p", {}, sentence)));
  if (data.origin) facts.push(make("p", { class: "note" }, `Times count from ${data.origin}.`));
  if (data.findings.length > 0) {
    const list = make("ul", { class: "findings", "aria-label": "Findings" });
    for (const { level, text } of data.findings) {
      list.append(make("li", { class: level }, make("strong", {}, WORDS[level]), make("span", {}, text)));
    }
    facts.push(list);
  }
  return facts;
}

const page = document.getElementById("page");
if (page) {
  const server = Server.behind();
  const shown = new Page(page, server).open(server?.first() ?? embedded);
  shown.then(
    () => (document.documentElement.dataset.ready = "true"),
    (error: unknown) => {
      const what = error instanceof Error ? error.message : String(error);
      page.append(make("p", { class: "failed", role: "alert" }, `This page cannot be shown: ${what}`));
      document.documentElement.dataset.ready = "failed";
    },
  );
}
