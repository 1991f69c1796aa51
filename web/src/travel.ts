// Time travel: the live blocks at a selected instant, and the changes between two instants.

import type { Cell, Document, Table } from "./data";
import type { Host, SnapshotData } from "./host";
import type { Cursor, Pick as PickKind } from "./cursor";
import { make } from "./dom";
import { bytes, change, count, elapsed } from "./format";
import { Icicle, type Mode, asTable } from "./icicle";
import { Interval } from "./interval";
import type { Instant, View } from "./link";
import { type Node, Snapshots, type Top, type Totals } from "./snapshots";
import { TableView, tableView } from "./table";

const COMPARE_VIEW = "Compare the start and the end of the visible range, with allocations and frees in between";

/** One of several snapshots. */
interface At {
  snapshots: Snapshots;
  index: number;
}

/** Source of snapshots: stored in the document, or computed by the server. */
export type Source = "document" | "server";

export class TimeTravel {
  /** The selected instant and how to move from it. */
  readonly element: HTMLElement;
  /** What was live then: as a graph, by site, and block by block. */
  readonly flame: HTMLElement;
  readonly sites: HTMLElement;
  readonly blocksPanel: HTMLElement;
  /** Snapshots of the document; null while the recording continues. */
  stored: Snapshots | null;
  private introduction = make("p", { class: "note", id: "snapshots-note" });
  private tools = make("div", { class: "tools" });
  private groupingSelect = make("select", { id: "grouping", "aria-label": "Group by" });
  private summary = make("p", { class: "lead-in", id: "instant", "aria-live": "polite" });
  private commandLine = make("p", { class: "note" });
  private invertButton = make("button", { type: "button", title: "Show allocating functions on top and their callers below" }, "Invert");
  private grouping = "";
  private top: Top = "outermost";
  private now: At;
  /** The snapshot to compare with. */
  private before: At | null = null;
  private icicle: Icicle;
  private holders: TableView;
  private blocks: TableView;
  private calls = make("details", {}, make("summary", {}, "Show as table"));
  private compareButton = make("button", { type: "button", "aria-pressed": "false" }, "Compare from here");
  private blockTitle = make("h3", {}, "Blocks");
  private gone: TableView;
  private goneBox = make("div", { id: "gone", hidden: true }, make("h3", {}, "Blocks live at A but not at B"));
  private interval: Interval;
  /** Counts selections, so that answers to earlier requests are ignored. */
  private selections = 0;

  constructor(
    private host: Host,
    private data: Document,
    first: Snapshots,
    private cursor: Cursor,
    source: Source,
  ) {
    this.stored = source === "document" ? first : null;
    this.now = { snapshots: first, index: first.data.columns.peak ?? first.highest(-Infinity, Infinity) };
    const { root, totals } = this.summed();
    this.icicle = new Icicle(root, this.mode, [this.groupingSelect, this.invertButton], () => cursor.notifyChange());
    this.holders = new TableView(data, this.heldTable(totals));
    this.blocks = new TableView(data, this.blockTable("now"));
    this.gone = new TableView(data, this.blockTable("gone"));
    this.goneBox.append(this.gone.element);
    this.interval = new Interval(data);
    const texts = make("div", { class: "texts" }, this.summary, this.interval.summary, this.commandLine);
    this.element = make("div", { id: "travel" }, texts, this.tools);
    this.flame = make("div", {}, this.icicle.element, this.calls, this.introduction);
    this.sites = make("div", {}, this.holders.element, this.interval.element);
    this.blocksPanel = make("div", {}, this.blockTitle, this.blocks.element, this.goneBox);
    this.holders.element.id = "held";
    this.blocks.element.id = "live";
    // Up to twenty thousand rows are created only when they are opened.
    this.calls.addEventListener("toggle", () => this.fillCalls());
    this.groupingSelect.addEventListener("change", () => {
      this.grouping = this.groupingSelect.value;
      this.show();
    });
    this.invertButton.addEventListener("click", () => {
      this.top = this.top === "outermost" ? "innermost" : "outermost";
      this.show();
    });
    this.compareButton.addEventListener("click", () => {
      // Ignores answers to earlier requests.
      this.selections++;
      this.before = this.before ? null : this.now;
      this.show();
    });
    this.fillTools();
    this.show();
  }

  /** Continues with a newer document and its snapshots, if it has any. The selection stays. */
  async update(host: Host, data: Document, snapshotData: SnapshotData | null): Promise<void> {
    [this.host, this.data] = [host, data];
    if (!snapshotData) return;
    this.stored = await Snapshots.load(snapshotData);
    this.fillTools();
    this.introduce();
  }

  /** Searches the graph of stacks. */
  search(text: string): void {
    this.grouping = "";
    this.icicle.query = text;
    this.show();
    this.icicle.enterFirst();
  }

  /** Selects an instant, or compares it with the selected one. */
  pick(time: number, pick: PickKind): void {
    if (pick === "compare" && !this.before) this.before = this.now;
    void this.selectTime(time);
  }

  /** What the reader has chosen. */
  get view(): Pick<View, "at" | "with" | "by" | "top" | "find"> {
    const { stored, now, before, top } = this;
    const instant = (at: At): Instant => (at.snapshots === stored && at.index === stored.data.columns.peak ? "peak" : this.time(at));
    const at = instant(now);
    const by = this.groupingIndex() === 0 ? "" : this.grouping;
    // The peak is the default.
    return { at: at === "peak" && !before ? null : at, with: before && instant(before), by, top, find: this.icicle.query };
  }

  /** Restores what a reader had chosen. */
  async restore({ at, with: other, by, top, find }: View): Promise<void> {
    [this.grouping, this.top, this.icicle.query] = [by, top, find];
    const { stored, complete, data } = this;
    const peak = stored?.data.columns.peak ?? null;
    const exists = (instant: Instant | null): instant is Instant =>
      instant === "peak" ? peak !== null : instant !== null && instant <= data.span;
    const time = (instant: Instant) => (instant === "peak" ? (stored?.times[peak ?? 0] ?? 0) : instant);
    const wanted = exists(at) ? at : "peak";
    const before = exists(other) ? other : null;
    this.before = null;
    if (!exists(wanted)) this.show();
    else if (complete) {
      const found = (instant: Instant) => ({ snapshots: complete, index: instant === "peak" ? (peak ?? 0) : complete.index(instant) });
      this.before = before === null ? null : found(before);
      this.select(found(wanted));
    } else if (stored && wanted === "peak" && before === null) this.selectStored(stored, peak ?? 0);
    else await this.request(before === null ? [time(wanted)] : [time(before), time(wanted)]);
  }

  /** The stored snapshots if they are used for every time; null if the host computes better ones. */
  private get complete(): Snapshots | null {
    return this.stored && (this.stored.data.columns.exact || !this.host.snapshots) ? this.stored : null;
  }

  private fillTools(): void {
    const button = (label: string, act: () => void, name = label) => make("button", { type: "button", "aria-label": name, title: name, click: act }, label);
    const { stored } = this;
    const move = (stored: Snapshots, by: number) => {
      const index = stored.index(this.time(this.now)) + by;
      this.selectStored(stored, Math.max(0, Math.min(stored.times.length - 1, index)));
    };
    const peak = stored?.data.columns.peak ?? null;
    const tools = [
      stored && peak !== null ? button("Peak", () => this.selectStored(stored, peak), "Go to peak") : null,
      button("Highest in view", () => this.selectHighest()),
      stored ? button("Earlier", () => move(stored, -1)) : null,
      stored ? button("Later", () => move(stored, 1)) : null,
      this.compareButton,
      make("button", { type: "button", title: COMPARE_VIEW, "aria-label": "Compare ends of view", click: () => this.compareView() }, "Compare ends"),
    ];
    this.tools.replaceChildren(...tools.filter((tool) => tool !== null));
  }

  private selectHighest(): void {
    const { complete, cursor } = this;
    if (complete) this.selectStored(complete, complete.highest(cursor.view.from, cursor.view.to));
    else void this.selectTime(cursor.highestInView?.() ?? this.time(this.now));
  }

  private compareView(): void {
    const { complete } = this;
    const from = Math.max(0, this.cursor.view.from);
    const to = Math.min(this.data.span, this.cursor.view.to);
    if (!complete) {
      void this.request([from, to]);
      return;
    }
    this.before = { snapshots: complete, index: complete.index(from) };
    this.select({ snapshots: complete, index: complete.index(to) });
  }

  /** Selects a stored snapshot. */
  private selectStored(stored: Snapshots, index: number): void {
    const to = { snapshots: stored, index };
    // The compared snapshot may not be stored; the nearest stored one would be another instant.
    if (this.before && this.before.snapshots !== stored && stored !== this.complete) void this.request([this.time(this.before), this.time(to)]);
    else this.select(to);
  }

  private time({ snapshots, index }: At): number {
    return snapshots.times[index] ?? 0;
  }

  /** Selects a time: exactly if the host can compute it, else the nearest stored snapshot. */
  private async selectTime(time: number): Promise<void> {
    const { complete } = this;
    if (complete) this.select({ snapshots: complete, index: complete.index(time) });
    else await this.request(this.before ? [this.time(this.before), time] : [time]);
  }

  /** Requests snapshots of exactly these times: selects the last, and compares it with the first of two. */
  private async request(times: number[]): Promise<void> {
    const selection = ++this.selections;
    this.summary.textContent = "Loading …";
    try {
      const answer = await this.host.snapshots?.(times.map(Math.round));
      const snapshots = answer && (await Snapshots.load(answer));
      // The reader may have selected another instant meanwhile.
      if (selection !== this.selections || !snapshots) return;
      const [first = 0, last = first] = times;
      this.before = times.length > 1 ? { snapshots, index: snapshots.index(first) } : null;
      this.now = { snapshots, index: snapshots.index(last) };
      this.show();
    } catch (error) {
      if (selection === this.selections) this.summary.textContent = failure(error);
    }
  }

  private select(now: At): void {
    this.selections++;
    // Group numbers differ between answers, so both snapshots must come from the same one.
    if (this.before && this.before.snapshots !== now.snapshots) {
      this.before = { snapshots: now.snapshots, index: now.snapshots.index(this.time(this.before)) };
    }
    this.now = now;
    this.show();
  }

  private summed(): { root: Node; totals: { now: Totals; before: Totals | null } } {
    const { snapshots, index } = this.now;
    const totals = { now: snapshots.heldAt(index), before: this.before ? snapshots.heldAt(this.before.index) : null };
    return { root: snapshots.tree(this.groupingIndex(), totals.now, totals.before, this.mode.top), totals };
  }

  private groupingIndex(): number {
    return Math.max(0, this.now.snapshots.groupings.indexOf(this.grouping));
  }

  /** The mode of the icicle graph; a grouping with one level cannot be inverted. */
  private get mode(): Mode {
    const top = this.now.snapshots.isDeep(this.groupingIndex()) ? this.top : "outermost";
    return { compares: this.before !== null, top };
  }

  private show(): void {
    const { root, totals } = this.summed();
    this.icicle.show(root, this.mode);
    this.holders.replace(this.heldTable(totals));
    this.blocks.replace(this.blockTable("now"));
    this.gone.replace(this.blockTable("gone"));
    this.goneBox.hidden = this.before === null;
    this.interval.show(this.now.snapshots, this.now.index, this.before?.index ?? null);
    while (this.calls.childElementCount > 1) this.calls.lastElementChild?.remove();
    this.fillCalls(root);
    this.summarize();
    this.introduce();
    this.offerGroupings();
    const letters = this.before ? ["A", "B"] : [""];
    const selected = (this.before ? [this.before, this.now] : [this.now]).map((at, place) => ({
      time: this.time(at),
      letter: letters[place] ?? "",
    }));
    this.cursor.select(selected);
    const label = this.before ? "Stop comparing" : "Compare from here";
    this.compareButton.textContent = this.before ? label : "Compare";
    this.compareButton.setAttribute("aria-label", label);
    this.compareButton.setAttribute("aria-pressed", String(this.before !== null));
  }

  private introduce(): void {
    const { stored, complete } = this;
    const { snapshots } = this.now;
    const what = stored ? "at the peak, or at any instant" : "at an instant";
    const isAnswer = snapshots !== stored && !complete;
    const note = isAnswer ? snapshots.data.columns.note : complete ? complete.data.columns.note : "The server computes any instant exactly.";
    this.introduction.textContent = `What held memory ${what} that you click on a timeline. ${note}`;
  }

  /** Fills the list of groupings; answers of a server may have others than the document. */
  private offerGroupings(): void {
    const { groupings } = this.now.snapshots;
    const select = this.groupingSelect;
    select.hidden = groupings.length < 2;
    const names = groupings.join();
    if (select.dataset.names !== names) {
      select.dataset.names = names;
      select.replaceChildren(...groupings.map((name) => make("option", { value: name }, `by ${name}`)));
    }
    select.value = groupings.includes(this.grouping) ? this.grouping : (groupings[0] ?? "");
    this.invertButton.hidden = !this.now.snapshots.isDeep(this.groupingIndex());
    this.invertButton.setAttribute("aria-pressed", String(this.top === "innermost"));
  }

  private fillCalls(root = this.summed().root): void {
    if (this.calls.open && this.calls.childElementCount === 1) {
      this.calls.append(tableView(this.data, asTable(root, this.mode)));
    }
  }

  private summarize(): void {
    const { snapshots, index } = this.now;
    const isPeak = snapshots === this.stored && index === snapshots.data.columns.peak;
    const when = (at: At) => elapsed(this.time(at));
    const size = (at: At) => {
      const blocks = at.snapshots.blocks[at.index] ?? 0;
      return `${bytes(at.snapshots.bytes[at.index] ?? 0)} in ${count(blocks)} ${blocks === 1 ? "block" : "blocks"}`;
    };
    const peak = isPeak ? " (the peak)" : "";
    if (this.before) {
      const by = (snapshots.bytes[index] ?? 0) - (snapshots.bytes[this.before.index] ?? 0);
      this.summary.textContent = `From A at ${when(this.before)}, ${size(this.before)}, to B at ${when(this.now)}${peak}, ${size(this.now)}: ${change(by)}.`;
    } else this.summary.textContent = `At ${when(this.now)}${peak}: ${size(this.now)}.`;
    const command = `floodmark watermark ${quoted(this.data.source)} --at ${elapsed(Math.max(0, this.time(this.now)))}${this.data.filters ? ` ${this.data.filters}` : ""}`;
    this.blockTitle.textContent = this.before ? "Blocks live at B but not at A" : "Blocks";
    this.commandLine.replaceChildren(isPeak ? "" : "In the terminal: ", isPeak ? "" : make("code", {}, command));
  }

  private heldTable({ now, before }: { now: Totals; before: Totals | null }): Table {
    const { snapshots } = this.now;
    const site = snapshots.groupings.indexOf("site");
    const root = snapshots.tree(Math.max(0, site), now, before);
    const leaves: { name: string; node: Node }[] = [];
    const add = (node: Node, path: string[]) => {
      const names = node.depth > 0 ? [...path, node.text] : path;
      if (node.children.length === 0 && node.depth > 0) leaves.push({ name: names.join(", "), node });
      node.children.forEach((child) => add(child, names));
    };
    add(root, []);
    const rank = ({ node }: { node: Node }) => (before ? Math.abs(node.bytes - node.before) : node.bytes);
    leaves.sort((a, b) => rank(b) - rank(a));
    const rows = leaves.map(({ name, node }): Cell[] =>
      before
        ? [name, node.before, node.bytes, node.bytes - node.before, node.blocks]
        : [name, node.bytes, node.bytes / Math.max(1, root.bytes), node.blocks],
    );
    const name = { name: site < 0 ? (snapshots.groupings[0] ?? "origin") : "site", kind: "code" as const };
    const figures: Table["columns"] = before
      ? [
          { name: "at A", kind: "bytes" },
          { name: "at B", kind: "bytes" },
          { name: "change", kind: "change" },
          { name: "blocks at B", kind: "count" },
        ]
      : [
          { name: "bytes", kind: "bytes" },
          { name: "share", kind: "share" },
          { name: "blocks", kind: "count" },
        ];
    return { id: "held", title: "Held by", note: "", columns: [name, ...figures], rows, details: [], omitted: 0, still: false };
  }

  /** Returns the live blocks, only new ones in a comparison; or the blocks that are gone. */
  private blockTable(which: "now" | "gone"): Table {
    const { snapshots, index } = this.now;
    const before = this.before?.index ?? null;
    const gone = before === null ? [] : snapshots.liveBlocks(before, index);
    const live = which === "gone" ? gone : snapshots.liveBlocks(index, before);
    const blocks = live.map((row) => snapshots.block(row));
    const hasSites = blocks.some(({ site }) => site !== "(no stack)");
    const rows = blocks.map(({ bytes, address, time, thread, stream, site }): Cell[] => [
      bytes,
      address,
      time,
      thread,
      stream,
      ...(hasSites ? [site] : []),
    ]);
    const columns: Table["columns"] = [
      { name: "bytes", kind: "bytes" },
      { name: "address", kind: "code" },
      { name: "allocated", kind: "time" },
      { name: "thread", kind: "text" },
      { name: "stream", kind: "text" },
      ...(hasSites ? [{ name: "site or name", kind: "code" as const }] : []),
    ];
    const all = snapshots.blocks[index] ?? 0;
    const details = hasSites
      ? (row: number) => {
          const block = blocks[row];
          const frames = block ? snapshots.frames(block.group) : [];
          return block && frames.length > 0 ? [{ text: bytes(block.bytes), stack: frames }] : [];
        }
      : [];
    const omitted = this.before || which === "gone" ? 0 : all - rows.length;
    return { id: which === "gone" ? "gone" : "live", title: which === "gone" ? "Blocks live at A but not at B" : "Blocks", note: "", columns, rows, details, omitted, still: false };
  }
}

/** Returns the message for a failed request. */
export function failure(error: unknown): string {
  return `The server did not answer: ${error instanceof Error ? error.message : String(error)}`;
}

/** Quotes a word for a shell. */
function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
