// Time travel: what was live at an instant that somebody picks, and what changed between two.

import type { Cell, Document, Table } from "./data";
import type { Host, Part } from "./host";
import type { Cursor } from "./cursor";
import { make, section } from "./dom";
import { bytes, change, count, exactSeconds, seconds } from "./format";
import { Icicle, asTable } from "./icicle";
import { Instants, type Node, type Sums } from "./instants";
import { TableView, tableView } from "./table";

const NS = 1e9;

/** An instant of some instants. */
interface At {
  instants: Instants;
  index: number;
}

export class Travel {
  readonly element: HTMLElement;
  private says = make("p", { class: "lead-in", id: "instant", "aria-live": "polite" });
  private asks = make("p", { class: "note" });
  private way = 0;
  private now: At;
  /** What it is compared with. */
  private before: At | null = null;
  private icicle: Icicle;
  private holders: TableView;
  private blocks: TableView;
  private calls = make("details", {}, make("summary", {}, "The same as a table"));
  private compareButton = make("button", { type: "button", "aria-pressed": "false" }, "Compare from here");
  private blockTitle = make("h3", {}, "Blocks");
  private asked = 0;

  static async begin(host: Host, data: Document, part: Part, cursor: Cursor): Promise<Travel> {
    return new Travel(host, data, await Instants.load(part), cursor);
  }

  private constructor(
    private host: Host,
    private data: Document,
    public kept: Instants,
    private cursor: Cursor,
  ) {
    const { moments } = kept.part;
    this.now = { instants: kept, index: moments.peak ?? kept.highest(-Infinity, Infinity) };
    const { root, sums } = this.added();
    this.icicle = new Icicle(root, false);
    this.holders = new TableView(data, this.heldTable(sums));
    this.blocks = new TableView(data, this.blockTable());
    this.element = section(
      "travel",
      "Time travel",
      `Who held memory at an instant: at the peak, or wherever a timeline is clicked. ${moments.note}`,
      this.tools(),
      this.says,
      this.asks,
      this.icicle.element,
      this.calls,
      make("h3", {}, "Held by"),
      this.holders.element,
      this.blockTitle,
      this.blocks.element,
    );
    this.holders.element.id = "held";
    this.blocks.element.id = "live";
    // Twenty thousand rows are made only if somebody wants them.
    this.calls.addEventListener("toggle", () => this.fillCalls());
    cursor.onPick((time, pick) => {
      if (pick === "compare" && !this.before) this.before = this.now;
      void this.go(time);
    });
    this.show();
  }

  /** More instants are kept now. */
  async keep(host: Host, data: Document, part: Part): Promise<void> {
    [this.host, this.data, this.kept] = [host, data, await Instants.load(part)];
  }

  private tools(): HTMLElement {
    const button = (label: string, act: () => void) => make("button", { type: "button", click: act }, label);
    const { peak } = this.kept.part.moments;
    const jump = (index: number) => this.at({ instants: this.kept, index });
    const near = (by: number) => {
      const index = this.kept.index(this.time(this.now)) + by;
      jump(Math.max(0, Math.min(this.kept.times.length - 1, index)));
    };
    const way = make("select", { id: "way", "aria-label": "Group by" });
    this.kept.ways.forEach((name, at) => way.append(make("option", { value: at }, `by ${name}`)));
    way.addEventListener("change", () => {
      this.way = Number(way.value);
      this.show();
    });
    this.compareButton.addEventListener("click", () => {
      this.before = this.before ? null : this.now;
      this.show();
    });
    return make(
      "div",
      { class: "tools" },
      peak === null ? null : button("At the peak", () => jump(peak)),
      button("Highest in view", () => jump(this.kept.highest(this.cursor.view.from, this.cursor.view.to))),
      button("Earlier", () => near(-1)),
      button("Later", () => near(1)),
      this.compareButton,
      button("Compare begin and end of view", () => this.compareView()),
      this.kept.ways.length > 1 ? way : null,
    );
  }

  private compareView(): void {
    const { from, to } = this.cursor.view;
    const index = (time: number) => this.kept.index(time);
    this.before = { instants: this.kept, index: index(from) };
    this.at({ instants: this.kept, index: index(to) });
  }

  private time({ instants, index }: At): number {
    return instants.times[index] ?? 0;
  }

  /** Goes to a time: exactly, if the host can tell, else to the nearest instant that is kept. */
  private async go(time: number): Promise<void> {
    const asked = ++this.asked;
    if (!this.host.moments || this.kept.part.moments.exact) {
      this.at({ instants: this.kept, index: this.kept.index(time) });
      return;
    }
    const times = this.before ? [this.time(this.before), time] : [time];
    this.says.textContent = "Looking …";
    try {
      const instants = await Instants.load(await this.host.moments(times.map(Math.round)));
      // Somebody may have picked another instant meanwhile.
      if (asked !== this.asked) return;
      if (this.before) this.before = { instants, index: instants.index(this.time(this.before)) };
      this.at({ instants, index: instants.index(time) });
    } catch (error) {
      this.says.textContent = `The server does not answer: ${error instanceof Error ? error.message : String(error)}`;
    }
  }

  private at(now: At): void {
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
    return { root: instants.tree(this.way, sums.now, sums.before), sums };
  }

  private show(): void {
    const { root, sums } = this.added();
    this.icicle.show(root, this.before !== null);
    this.holders.replace(this.heldTable(sums));
    this.blocks.replace(this.blockTable());
    while (this.calls.childElementCount > 1) this.calls.lastElementChild?.remove();
    this.fillCalls(root);
    this.tell();
    const letters = this.before ? ["A", "B"] : [""];
    const picked = (this.before ? [this.before, this.now] : [this.now]).map((at, place) => ({
      time: this.time(at),
      letter: letters[place] ?? "",
    }));
    this.cursor.mark(picked);
    this.compareButton.textContent = this.before ? "Stop comparing" : "Compare from here";
    this.compareButton.setAttribute("aria-pressed", String(this.before !== null));
  }

  private fillCalls(root = this.added().root): void {
    if (this.calls.open && this.calls.childElementCount === 1) {
      this.calls.append(tableView(this.data, asTable(root, this.before !== null)));
    }
  }

  private tell(): void {
    const { instants, index } = this.now;
    const isPeak = instants === this.kept && index === this.kept.part.moments.peak;
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
    const after = Math.max(0, this.time(this.now) - this.kept.part.moments.first);
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

  private blockTable(): Table {
    const { instants, index } = this.now;
    const live = instants.live(index, this.before?.index ?? null);
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
    const omitted = this.before ? 0 : all - rows.length;
    return { id: "live", title: "Blocks", note: "", columns, rows, details, omitted, still: false };
  }
}

/** A word for a shell. */
function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
