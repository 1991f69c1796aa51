// The page: the story and the findings, the timelines, and below them what was live at the selected instant.

import type { Document, Dot } from "./data";
import type { Host } from "./host";
import { BreakdownView } from "./breakdown";
import { type ChartView, LIVE_BYTES, chartSection, replaceChart } from "./chart";
import { Cursor, type Span } from "./cursor";
import { make } from "./dom";
import { elapsed } from "./format";
import { mapSections, rankSection } from "./addresses";
import { RangeLane } from "./lane";
import { DEFAULT_VIEW, Link, type View } from "./link";
import { Live } from "./live";
import { type OutputView, outputSection } from "./output";
import { Overview } from "./overview";
import type { Server } from "./server";
import { Snapshots } from "./snapshots";
import { threadStacks } from "./stack";
import { story } from "./story";
import { type TableSection, tableSection } from "./table";
import { type Tab, Tabs } from "./tabs";
import { themeButton } from "./theme";
import { TimeTravel, failure } from "./travel";

/** Tables with a tab of their own, in the order of the tabs; all others share the last one. */
const OWN_TABS: Record<string, string> = { leaks: "", calls: "Calls", functions: "Functions", ranks: "Ranks", stacks: "Stacks", output: "Output", processes: "Processes", phases: "Phases" };

export class Page {
  private cursor = new Cursor();
  private title = make("h1");
  private command = make("p", { class: "command" });
  private bar = make("header", { class: "bar-top" }, this.title, this.command, themeButton());
  private aside = make("aside", { "aria-label": "What happened" });
  private facts = make("div");
  private foot = make("footer", { class: "note" });
  private overview = new Overview(this.cursor);
  private chartTabs = new Tabs("Timelines", () => this.cursor.notifyChange());
  private timeline = make("section", { id: "timeline", "aria-label": "Timeline" }, this.overview.element, this.chartTabs.list, this.chartTabs.panels);
  private tabs = new Tabs("What was live", () => this.cursor.notifyChange());
  private work = make("section", { id: "work", "aria-label": "Selected instant" });
  private stackPane = make("div", { id: "chosen-stack", "aria-live": "polite", hidden: true });
  private contents = make("nav", { class: "contents", "aria-label": "Tables" });
  private charts = new Map<string, ChartView>();
  private tables = new Map<string, TableSection>();
  /** Divides the first timeline, if it can be divided. */
  private breakdown: BreakdownView | null = null;
  private isDivided = false;
  private output: OutputView | null = null;
  private lane: RangeLane | null = null;
  private rankMap: HTMLElement | null = null;
  private travel: TimeTravel | null = null;
  private maps: HTMLElement[] = [];
  /** State of the first request for a snapshot, while the document has none. */
  private requestStatus = make("p", { class: "lead-in", role: "status", hidden: true });
  private requests = 0;
  private latest: { host: Host; data: Document } | null = null;
  /** The visible range unless the reader chooses another one; null for everything. */
  private home: Span | null = null;
  /** The header in JSON, to detect changes. */
  private shownHeader = "";
  private drawing: Promise<unknown> = Promise.resolve();
  private link = new Link({ view: () => this.view(), restore: (view) => this.restore(view), reveal: (id) => this.reveal(id) }, this.cursor);

  constructor(page: HTMLElement, server: Server | null) {
    this.cursor.onPick((time, pick) => {
      if (this.travel) this.travel.pick(time, pick);
      else void this.requestFirst(time);
    });
    this.aside.append(this.facts);
    // Added to the page before they are filled, because charts need to know their width.
    page.append(this.bar, make("div", { class: "app" }, this.aside, make("main", {}, this.timeline, this.work), this.foot));
    if (!server) return;
    const live = new Live(server, async () => {
      const { host, version } = await server.latest();
      await this.show(host);
      return version;
    });
    this.command.after(live.status);
  }

  /** Shows a document for the first time, with the view that the address encodes. */
  async open(host: Host): Promise<void> {
    await this.show(host);
    // A page that follows a recording shows all of it.
    const data = this.latest?.data;
    this.home = host.range && !data?.snapshots ? null : (data?.active ?? null);
    if (this.home) this.cursor.zoom(this.home);
    await this.link.start();
  }

  private view(): View {
    const { cursor, home, latest, tabs, chartTabs } = this;
    const isHome = home && cursor.zoomed && Math.abs(cursor.zoomed.from - home.from) < 2 && Math.abs(cursor.zoomed.to - home.to) < 2;
    const everything = home && latest ? { from: 0, to: latest.data.span } : null;
    return {
      ...DEFAULT_VIEW,
      ...this.travel?.view,
      span: isHome ? null : (cursor.zoomed ?? everything),
      tab: tabs.chosen,
      chart: chartTabs.chosen,
      stack: this.breakdown?.by ?? "",
    };
  }

  private async restore(view: View): Promise<void> {
    const span = view.span ?? this.home;
    if (span || this.cursor.zoomed) this.cursor.zoom(span);
    const { at } = view;
    if (!this.travel && typeof at === "number" && at <= (this.latest?.data.span ?? 0)) await this.requestFirst(at);
    await this.travel?.restore(view);
    await this.breakdown?.restore(view.stack);
    this.tabs.restore(view.tab);
    this.chartTabs.restore(view.chart);
  }

  /** Selects the tab of an element and scrolls to it. */
  private reveal(id: string): void {
    const element = document.getElementById(id);
    if (!element) return;
    this.tabs.reveal(element);
    this.chartTabs.reveal(element);
    element.scrollIntoView({ block: "nearest" });
  }

  private search(name: string): void {
    this.travel?.search(name);
    this.tabs.show("flame");
  }

  /** Shows a document, after earlier ones are drawn; existing elements stay in place. */
  show(host: Host): Promise<void> {
    const drawing = this.drawing.then(() => this.draw(host));
    this.drawing = drawing.catch(() => undefined);
    return drawing;
  }

  private async draw(host: Host): Promise<void> {
    const data = await host.document();
    this.showHeader(data);
    this.latest = { host, data };
    await this.updateTimelines(host, data);
    await this.updateOutput(host, data);
    await this.updateTravel(host, data);
    this.updateTables(data);
    this.arrange();
    const where = host.range ? "Served locally; loads nothing from other machines." : "This file is self-contained and loads nothing from the network.";
    this.foot.textContent = `Generated by ${data.program}. ${where} The address of the page encodes the current view.`;
  }

  private showHeader(data: Document): void {
    const { source, command, origin, findings } = data;
    const header = JSON.stringify({ source, command, story: data.story, origin, findings });
    if (header === this.shownHeader) return;
    this.shownHeader = header;
    this.title.textContent = source.split("/").pop() || source;
    this.title.title = source;
    this.command.textContent = command ?? "";
    this.command.title = command ?? "";
    this.facts.replaceChildren(...story(data));
  }

  private async updateTimelines(host: Host, data: Document): Promise<void> {
    const tabs: Tab[] = [];
    const begin = await earliest(host, data);
    const first = data.charts[0]?.series[0];
    if (first && first.times.length > 0) {
      const [times, values] = await Promise.all([host.numbers(first.times), host.numbers(first.values)]);
      this.overview.update({ times, values }, data.marks, { from: begin, to: Math.max(data.span, begin + 1) });
    }
    this.overview.element.hidden = !first;
    for (const [at, chart] of data.charts.entries()) {
      const id = `chart-${at}`;
      const dots = chart.dots ? data.dots : [];
      let view = this.charts.get(id);
      // Live bytes can be divided once the document has snapshots.
      const isDivided = chart.title === LIVE_BYTES && data.snapshots !== null;
      const isNew = view && isDivided && !this.isDivided;
      if (!view || isNew || !(await view.update({ host, data, chart, dots }))) {
        const choose = (dot: Dot) => this.showStack(data, dot);
        this.isDivided ||= isDivided;
        const show = (by: string, name: string) => (by === "site" ? this.search(name) : this.tabs.show(by === "process" ? "processes" : this.tabs.current));
        const breakdown = isDivided || chart.parts ? new BreakdownView(chart.title, this.cursor, show) : null;
        if (at === 0) this.breakdown = breakdown;
        const next = await chartSection({ host, data, chart, id, begin, cursor: this.cursor, width: this.timeline.clientWidth || 600, dots, choose, breakdown });
        if (view) replaceChart(view, next);
        view = next;
      }
      this.charts.set(id, view);
      tabs.push({ id, title: chart.title, content: [view.element] });
    }
    if (data.ranks) {
      this.rankMap ??= await rankSection(host, data, data.ranks, this.cursor);
      tabs.push({ id: "rank-map-tab", title: "Ranks", content: [this.rankMap] });
    }
    this.chartTabs.set(tabs);
    if (!data.ranges) return;
    if (!this.lane) {
      this.lane = new RangeLane(this.cursor);
      this.timeline.append(this.lane.element);
    }
    await this.lane.update(host, data, data.ranges);
  }

  private showStack(data: Document, dot: Dot): void {
    const close = make("button", { type: "button", click: () => (this.stackPane.hidden = true) }, "Close");
    const title = make("h3", {}, `Stacks at ${elapsed(dot.time)} (${dot.reason})`);
    this.stackPane.replaceChildren(title, close, ...threadStacks(data, dot));
    this.stackPane.hidden = false;
    this.tabs.show("stacks");
  }

  private async updateOutput(host: Host, { output }: Document): Promise<void> {
    if (!output) return;
    if (this.output) await this.output.update(host, output);
    else this.output = await outputSection(host, output, this.cursor);
  }

  private async updateTravel(host: Host, data: Document): Promise<void> {
    const { snapshots, strings } = data;
    const snapshotData = snapshots && { columns: snapshots, strings, numbers: host.numbers };
    if (this.travel) await this.travel.update(host, data, snapshotData);
    else if (snapshotData) this.travel = new TimeTravel(host, data, await Snapshots.load(snapshotData), this.cursor, "document");
    if (!snapshotData || !this.travel?.stored) return;
    this.maps = await mapSections(data, snapshotData, this.travel.stored, this.cursor);
    await this.breakdown?.update(snapshotData, this.travel.stored);
  }

  /** Requests the first snapshot from the server, while the document has none. */
  private async requestFirst(time: number): Promise<void> {
    const { host, data } = this.latest ?? {};
    if (!host?.snapshots || data?.charts[0]?.title !== LIVE_BYTES) return;
    const request = ++this.requests;
    this.requestStatus.textContent = "Loading …";
    this.requestStatus.hidden = false;
    this.arrange();
    try {
      const snapshots = await Snapshots.load(await host.snapshots([Math.round(time)]));
      // The reader may have picked another instant meanwhile.
      if (request !== this.requests) return;
      // The recording may have ended, so that the document has snapshots.
      if (this.travel) this.travel.pick(time, "select");
      else this.travel = new TimeTravel(host, data, snapshots, this.cursor, "server");
      this.requestStatus.hidden = true;
    } catch (error) {
      if (request === this.requests) this.requestStatus.textContent = failure(error);
    }
    this.arrange();
    this.tabs.restore("");
  }

  private updateTables(data: Document): void {
    const wanted = data.tables.filter(({ still }) => !still || !data.snapshots);
    const known = new Map<string, TableSection>();
    for (const table of wanted) {
      const section = this.tables.get(table.id) ?? tableSection(data, table);
      section.update(data, table);
      known.set(table.id, section);
    }
    this.tables = known;
  }

  /** Distributes everything below the timelines over tabs. */
  private arrange(): void {
    const { travel, tables, output, maps } = this;
    const tabs: Tab[] = [];
    if (travel) {
      tabs.push({ id: "flame", title: "Flame graph", content: [travel.flame] });
      tabs.push({ id: "sites", title: "Sites", content: [travel.sites] });
      tabs.push({ id: "blocks", title: "Blocks", content: [travel.blocksPanel] });
    }
    if (maps.length > 0) tabs.push({ id: "addresses", title: "Addresses", content: maps });
    for (const [id, title] of Object.entries(OWN_TABS)) {
      const table = tables.get(id)?.element;
      const content = [id === "output" ? output?.element : table].filter((element) => element !== undefined);
      if (content.length === 0) continue;
      if (id === "stacks") content.unshift(this.stackPane);
      tabs.push({ id, title: title || (table?.querySelector("h2")?.textContent ?? id), content });
    }
    const rest = [...tables].filter(([id]) => !(id in OWN_TABS)).map(([, { element }]) => element);
    if (rest.length > 0) tabs.push({ id: "details", title: "Details", content: [this.contents, ...rest] });
    this.tabs.set(tabs);
    const wanted = [...(this.requestStatus.hidden ? [] : [this.requestStatus]), ...(travel ? [travel.element] : []), this.tabs.list, this.tabs.panels];
    for (const old of [...this.work.children]) if (!wanted.includes(old as HTMLElement)) old.remove();
    wanted.forEach((element, at) => {
      const there = this.work.children[at];
      if (there !== element) this.work.insertBefore(element, there ?? null);
    });
    this.contents.replaceChildren(...rest.map((section) => make("a", { href: `#${section.id}` }, section.querySelector("h2")?.textContent ?? section.id)));
  }
}

/** Returns the earliest time in any timeline. */
async function earliest(host: Host, { charts, marks }: Document): Promise<number> {
  const columns = charts.flatMap(({ series }) => series.map(({ times }) => times)).filter(({ length }) => length > 0);
  const firsts = await Promise.all(columns.map(async (times) => (await host.numbers(times))[0] ?? 0));
  const all = [...firsts, ...marks.map(({ time }) => time)];
  return all.reduce((first, time) => Math.min(first, time), all[0] ?? 0);
}
