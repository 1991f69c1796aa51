// Time travel: what was live at an instant that somebody picks, and what changed between two.

import type { Cell, Document, Table } from "./data";
import type { Host, Part } from "./host";
import type { Cursor, Pick } from "./cursor";
import { make, section } from "./dom";
import { bytes, change, count, exactSeconds, seconds } from "./format";
import { Churn } from "./churn";
import { Icicle, type Reading, asTable } from "./icicle";
import type { Instant, View } from "./link";
import { Instants, type Node, type Sums, type Top } from "./instants";
import { TableView, tableView } from "./table";

const NS = 1e9;

const SPAN = "Compares begin and end of what is in sight, and says what was allocated and freed in between";

/** An instant of some instants. */
interface At {
  instants: Instants;
  index: number;
}

/** Where the first instants come from: the document keeps them, or a server was asked for them. */
export type Origin = "kept" | "answer";

export class Travel {
  readonly element: HTMLElement;
  /** Instants of the document; none while a recording goes on. */
  kept: Instants | null;
  private lead = make("p", { class: "note" });
  private tools = make("div", { class: "tools" });
  private ways = make("select", { id: "way", "aria-label": "Group by" });
  private says = make("p", { class: "lead-in", id: "instant", "aria-live": "polite" });
  private asks = make("p", { class: "note" });
  private turn = make("button", { type: "button", title: "Who allocates stands on top, its callers below" }, "Innermost on top");
  private way = "";
  private top: Top = "outermost";
  private now: At;
  /** What it is compared with. */
  private before: At | null = null;
  private icicle: Icicle;
  private holders: TableView;
  private blocks: TableView;
  private calls = make("details", {}, make("summary", {}, "The same as a table"));
  private compareButton = make("button", { type: "button", "aria-pressed": "false" }, "Compare from here");
  private blockTitle = make("h3", {}, "Blocks");
  private gone: TableView;
  private goneBox = make("div", { id: "gone", hidden: true }, make("h3", {}, "Blocks that were live at A and are not at B"));
  private churn: Churn;
  private asked = 0;

  constructor(
    private host: Host,
    private data: Document,
    first: Instants,
    private cursor: Cursor,
    origin: Origin,
  ) {
    this.kept = origin === "kept" ? first : null;
    this.now = { instants: first, index: first.part.moments.peak ?? first.highest(-Infinity, Infinity) };
    const { root, sums } = this.added();
    this.icicle = new Icicle(root, this.reading, [this.ways, this.turn], () => cursor.change());
    this.holders = new TableView(data, this.heldTable(sums));
    this.blocks = new TableView(data, this.blockTable("now"));
    this.gone = new TableView(data, this.blockTable("gone"));
    this.goneBox.append(this.gone.element);
    this.churn = new Churn(data);
    this.element = section(
      "travel",
      "Time travel",
      "",
      this.lead,
      this.tools,
      this.says,
      this.churn.says,
      this.asks,
      this.icicle.element,
      this.calls,
      make("h3", {}, "Held by"),
      this.holders.element,
      this.churn.element,
      this.blockTitle,
      this.blocks.element,
      this.goneBox,
    );
    this.holders.element.id = "held";
    this.blocks.element.id = "live";
    // Twenty thousand rows are made only if somebody wants them.
    this.calls.addEventListener("toggle", () => this.fillCalls());
    this.ways.addEventListener("change", () => {
      this.way = this.ways.value;
      this.show();
    });
    this.turn.addEventListener("click", () => {
      this.top = this.top === "outermost" ? "innermost" : "outermost";
      this.show();
    });
    this.compareButton.addEventListener("click", () => {
      // What was asked for before that is not wanted any more.
      this.asked++;
      this.before = this.before ? null : this.now;
      this.show();
    });
    this.fillTools();
    this.show();
  }

  /** There is more now, and perhaps more instants that are kept. What is looked at stays. */
  async keep(host: Host, data: Document, part: Part | null): Promise<void> {
    [this.host, this.data] = [host, data];
    if (!part) return;
    this.kept = await Instants.load(part);
    this.fillTools();
    this.introduce();
  }

  /** Somebody picked an instant. */
  pick(time: number, pick: Pick): void {
    if (pick === "compare" && !this.before) this.before = this.now;
    void this.go(time);
  }

  /** What a reader has chosen. */
  get view(): Omit<View, "span"> {
    const { kept, now, before, top } = this;
    const instant = (at: At): Instant => (at.instants === kept && at.index === kept.part.moments.peak ? "peak" : this.time(at));
    const at = instant(now);
    const by = this.wayAt() === 0 ? "" : this.way;
    // A page opens at the peak.
    return { at: at === "peak" && !before ? null : at, with: before && instant(before), by, top, find: this.icicle.wanted };
  }

  /** Shows what somebody chose before. */
  async restore({ at, with: other, by, top, find }: View): Promise<void> {
    [this.way, this.top, this.icicle.wanted] = [by, top, find];
    const { kept, whole, data } = this;
    const peak = kept?.part.moments.peak ?? null;
    const isThere = (instant: Instant | null): instant is Instant =>
      instant === "peak" ? peak !== null : instant !== null && instant <= data.span;
    const time = (instant: Instant) => (instant === "peak" ? (kept?.times[peak ?? 0] ?? 0) : instant);
    const wanted = isThere(at) ? at : "peak";
    const before = isThere(other) ? other : null;
    this.before = null;
    if (!isThere(wanted)) this.show();
    else if (whole) {
      const found = (instant: Instant) => ({ instants: whole, index: instant === "peak" ? (peak ?? 0) : whole.index(instant) });
      this.before = before === null ? null : found(before);
      this.at(found(wanted));
    } else if (kept && wanted === "peak" && before === null) this.jump(kept, peak ?? 0);
    else await this.ask(before === null ? [time(wanted)] : [time(before), time(wanted)]);
  }

  /** The instants that answer for any time, if there are such; else the host does. */
  private get whole(): Instants | null {
    return this.kept && (this.kept.part.moments.exact || !this.host.moments) ? this.kept : null;
  }

  private fillTools(): void {
    const button = (label: string, act: () => void) => make("button", { type: "button", click: act }, label);
    const { kept } = this;
    const near = (kept: Instants, by: number) => {
      const index = kept.index(this.time(this.now)) + by;
      this.jump(kept, Math.max(0, Math.min(kept.times.length - 1, index)));
    };
    const peak = kept?.part.moments.peak ?? null;
    const tools = [
      kept && peak !== null ? button("At the peak", () => this.jump(kept, peak)) : null,
      button("Highest in view", () => this.highest()),
      kept ? button("Earlier", () => near(kept, -1)) : null,
      kept ? button("Later", () => near(kept, 1)) : null,
      this.compareButton,
      make("button", { type: "button", title: SPAN, click: () => this.compareView() }, "Span in view"),
    ];
    this.tools.replaceChildren(...tools.filter((tool) => tool !== null));
  }

  private highest(): void {
    const { whole, cursor } = this;
    if (whole) this.jump(whole, whole.highest(cursor.view.from, cursor.view.to));
    else void this.go(cursor.summit?.() ?? this.time(this.now));
  }

  private compareView(): void {
    const { whole } = this;
    const from = Math.max(0, this.cursor.view.from);
    const to = Math.min(this.data.span, this.cursor.view.to);
    if (!whole) {
      void this.ask([from, to]);
      return;
    }
    this.before = { instants: whole, index: whole.index(from) };
    this.at({ instants: whole, index: whole.index(to) });
  }

  /** Goes to an instant that is kept. */
  private jump(kept: Instants, index: number): void {
    const to = { instants: kept, index };
    // What it is compared with may not be kept, and must not become another instant.
    if (this.before && this.before.instants !== kept && kept !== this.whole) void this.ask([this.time(this.before), this.time(to)]);
    else this.at(to);
  }

  private time({ instants, index }: At): number {
    return instants.times[index] ?? 0;
  }

  /** Goes to a time: exactly, if the host can tell, else to the nearest instant that is kept. */
  private async go(time: number): Promise<void> {
    const { whole } = this;
    if (whole) this.at({ instants: whole, index: whole.index(time) });
    else await this.ask(this.before ? [this.time(this.before), time] : [time]);
  }

  /** Has the host tell of exactly these times: the last is looked at, one before it is what it is compared with. */
  private async ask(times: number[]): Promise<void> {
    const asked = ++this.asked;
    this.says.textContent = "Looking …";
    try {
      const part = await this.host.moments?.(times.map(Math.round));
      const instants = part && (await Instants.load(part));
      // Somebody may have picked another instant meanwhile.
      if (asked !== this.asked || !instants) return;
      const [first = 0, last = first] = times;
      this.before = times.length > 1 ? { instants, index: instants.index(first) } : null;
      this.now = { instants, index: instants.index(last) };
      this.show();
    } catch (error) {
      if (asked === this.asked) this.says.textContent = failure(error);
    }
  }

  private at(now: At): void {
    this.asked++;
    // Groups of different answers are not the same: both instants have to come from one.
    if (this.before && this.before.instants !== now.instants) {
      this.before = { instants: now.instants, index: now.instants.index(this.time(this.before)) };
    }
    this.now = now;
    this.show();
  }

  private added(): { root: Node; sums: { now: Sums; before: Sums | null } } {
    const { instants, index } = this.now;
    const sums = { now: instants.held(index), before: this.before ? instants.held(this.before.index) : null };
    return { root: instants.tree(this.wayAt(), sums.now, sums.before, this.reading.top), sums };
  }

  private wayAt(): number {
    return Math.max(0, this.now.instants.ways.indexOf(this.way));
  }

  /** A list of places has nothing to turn around. */
  private get reading(): Reading {
    const top = this.now.instants.isDeep(this.wayAt()) ? this.top : "outermost";
    return { compares: this.before !== null, top };
  }

  private show(): void {
    const { root, sums } = this.added();
    this.icicle.show(root, this.reading);
    this.holders.replace(this.heldTable(sums));
    this.blocks.replace(this.blockTable("now"));
    this.gone.replace(this.blockTable("gone"));
    this.goneBox.hidden = this.before === null;
    this.churn.show(this.now.instants, this.now.index, this.before?.index ?? null);
    while (this.calls.childElementCount > 1) this.calls.lastElementChild?.remove();
    this.fillCalls(root);
    this.tell();
    this.introduce();
    this.offerWays();
    const letters = this.before ? ["A", "B"] : [""];
    const picked = (this.before ? [this.before, this.now] : [this.now]).map((at, place) => ({
      time: this.time(at),
      letter: letters[place] ?? "",
    }));
    this.cursor.mark(picked);
    this.compareButton.textContent = this.before ? "Stop comparing" : "Compare from here";
    this.compareButton.setAttribute("aria-pressed", String(this.before !== null));
  }

  private introduce(): void {
    const { kept, whole } = this;
    const { instants } = this.now;
    const where = kept ? "at the peak, or wherever a timeline is clicked" : "wherever a timeline is clicked";
    const isAnswer = instants !== kept && !whole;
    const note = isAnswer ? instants.part.moments.note : whole ? whole.part.moments.note : "Whatever instant is clicked, the server tells of exactly that.";
    this.lead.textContent = `Who held memory at an instant: ${where}. ${note}`;
  }

  /** Answers of a server may know other ways to group than the document does. */
  private offerWays(): void {
    const { ways } = this.now.instants;
    this.ways.hidden = ways.length < 2;
    const names = ways.join();
    if (this.ways.dataset.names !== names) {
      this.ways.dataset.names = names;
      this.ways.replaceChildren(...ways.map((name) => make("option", { value: name }, `by ${name}`)));
    }
    this.ways.value = ways.includes(this.way) ? this.way : (ways[0] ?? "");
    this.turn.hidden = !this.now.instants.isDeep(this.wayAt());
    this.turn.setAttribute("aria-pressed", String(this.top === "innermost"));
  }

  private fillCalls(root = this.added().root): void {
    if (this.calls.open && this.calls.childElementCount === 1) {
      this.calls.append(tableView(this.data, asTable(root, this.reading)));
    }
  }

  private tell(): void {
    const { instants, index } = this.now;
    const isPeak = instants === this.kept && index === instants.part.moments.peak;
    const when = (at: At) => seconds(this.time(at) / NS, this.data.span / NS);
    const size = (at: At) => {
      const blocks = at.instants.blocks[at.index] ?? 0;
      return `${bytes(at.instants.bytes[at.index] ?? 0)} in ${count(blocks)} ${blocks === 1 ? "block" : "blocks"}`;
    };
    const peak = isPeak ? " (the peak)" : "";
    if (this.before) {
      const by = (instants.bytes[index] ?? 0) - (instants.bytes[this.before.index] ?? 0);
      this.says.textContent = `From A at ${when(this.before)}, ${size(this.before)}, to B at ${when(this.now)}${peak}, ${size(this.now)}: ${change(by)}.`;
    } else this.says.textContent = `At ${when(this.now)}${peak}: ${size(this.now)}.`;
    const after = Math.max(0, this.time(this.now) - instants.part.moments.first);
    const command = `floodmark watermark ${quoted(this.data.source)} --at +${exactSeconds(after)}${this.data.narrowed ? ` ${this.data.narrowed}` : ""}`;
    this.blockTitle.textContent = this.before ? "Blocks that are live at B and were not at A" : "Blocks";
    this.asks.replaceChildren(isPeak ? "" : "In the terminal: ", isPeak ? "" : make("code", {}, command));
  }

  private heldTable({ now, before }: { now: Sums; before: Sums | null }): Table {
    // By site if there are sites, which is the second way then.
    const { instants } = this.now;
    const site = instants.ways.indexOf("site");
    const root = instants.tree(Math.max(0, site), now, before);
    const leaves: { name: string; node: Node }[] = [];
    const add = (node: Node, path: string[]) => {
      const names = node.depth > 0 ? [...path, node.text] : path;
      if (node.children.length === 0 && node.depth > 0) leaves.push({ name: names.join(", "), node });
      node.children.forEach((child) => add(child, names));
    };
    add(root, []);
    const weight = ({ node }: { node: Node }) => (before ? Math.abs(node.bytes - node.before) : node.bytes);
    leaves.sort((a, b) => weight(b) - weight(a));
    const rows = leaves.map(({ name, node }): Cell[] =>
      before
        ? [name, node.before, node.bytes, node.bytes - node.before, node.blocks]
        : [name, node.bytes, node.bytes / Math.max(1, root.bytes), node.blocks],
    );
    const name = { name: site < 0 ? (instants.ways[0] ?? "who") : "site", kind: "code" as const };
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

  /** Blocks that are live now and, if instants are compared, were not before; or those that are gone. */
  private blockTable(which: "now" | "gone"): Table {
    const { instants, index } = this.now;
    const before = this.before?.index ?? null;
    const gone = before === null ? [] : instants.live(before, index);
    const live = which === "gone" ? gone : instants.live(index, before);
    const blocks = live.map((row) => instants.block(row));
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
    const all = instants.blocks[index] ?? 0;
    const details = hasSites
      ? (row: number) => {
          const block = blocks[row];
          const frames = block ? instants.frames(block.group) : [];
          return block && frames.length > 0 ? [{ text: bytes(block.bytes), stack: frames }] : [];
        }
      : [];
    const omitted = this.before || which === "gone" ? 0 : all - rows.length;
    return { id: which === "gone" ? "gone" : "live", title: which === "gone" ? "Blocks that are gone" : "Blocks", note: "", columns, rows, details, omitted, still: false };
  }
}

/** What is said when a server has no answer. */
export function failure(error: unknown): string {
  return `The server does not answer: ${error instanceof Error ? error.message : String(error)}`;
}

/** A word for a shell. */
function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
