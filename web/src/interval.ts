// Allocations and frees between two snapshots.

import type { Cell, Document, Table } from "./data";
import { make } from "./dom";
import { bytes, count } from "./format";
import type { Snapshots, Totals } from "./snapshots";
import { TableView } from "./table";

interface Amount {
  bytes: number;
  blocks: number;
}

interface SiteInterval {
  name: string;
  allocated: Amount;
  freed: Amount;
}

/** Returns allocations and frees by site, after snapshot `from` and up to `to`; null if cumulative totals are unknown. */
function bySite(snapshots: Snapshots, from: number, to: number): SiteInterval[] | null {
  const [allocatedLater, allocatedBefore] = [snapshots.allocatedUpTo(to), snapshots.allocatedUpTo(from)];
  if (!allocatedLater || !allocatedBefore) return null;
  const [heldLater, heldBefore] = [snapshots.heldAt(to), snapshots.heldAt(from)];
  const sites = new Map<string, SiteInterval>();
  snapshots.groupNames(Math.max(0, snapshots.groupings.indexOf("site"))).forEach((name, group) => {
    const allocated = difference(allocatedLater, allocatedBefore, group);
    const growth = difference(heldLater, heldBefore, group);
    const freed = { bytes: allocated.bytes - growth.bytes, blocks: allocated.blocks - growth.blocks };
    if (allocated.blocks === 0 && freed.blocks === 0) return;
    const known = sites.get(name);
    if (!known) sites.set(name, { name, allocated, freed });
    else {
      add(known.allocated, allocated);
      add(known.freed, freed);
    }
  });
  return [...sites.values()].sort((a, b) => b.allocated.bytes - a.allocated.bytes || b.freed.bytes - a.freed.bytes);
}

function difference(now: Totals, before: Totals, group: number): Amount {
  const of = (column: keyof Totals) => (now[column][group] ?? 0) - (before[column][group] ?? 0);
  return { bytes: of("bytes"), blocks: of("blocks") };
}

function add(sum: Amount, more: Amount): void {
  sum.bytes += more.bytes;
  sum.blocks += more.blocks;
}

/** Returns the blocks live at the later snapshot and not at the earlier, if both list all of their blocks. */
function stillLive(snapshots: Snapshots, from: number, to: number): Amount | null {
  const isComplete = (index: number) => snapshots.liveBlocks(index, null).length === snapshots.blocks[index];
  if (!isComplete(from) || !isComplete(to)) return null;
  const rows = snapshots.liveBlocks(to, from);
  return { blocks: rows.length, bytes: rows.reduce((sum, row) => sum + snapshots.block(row).bytes, 0) };
}

function formatted({ bytes: size, blocks }: Amount): string {
  return blocks === 0 ? "nothing" : `${bytes(size)} in ${count(blocks)} ${blocks === 1 ? "block" : "blocks"}`;
}

export class Interval {
  readonly summary = make("p", { id: "interval-summary", "aria-live": "polite", hidden: true });
  readonly element: HTMLElement;
  private table: TableView;
  private title = make("h3");

  constructor(data: Document) {
    this.table = new TableView(data, tableOf([], "site"));
    this.element = make(
      "div",
      { id: "interval", hidden: true },
      this.title,
      make("p", { class: "note" }, "After the earlier instant, up to and including the later one. A block whose address was allocated again counts as freed."),
      this.table.element,
    );
  }

  /** Shows allocations and frees between B and A, whichever is earlier; nothing if there is no A. */
  show(snapshots: Snapshots, b: number, a: number | null): void {
    this.summary.hidden = a === null;
    this.element.hidden = true;
    if (a === null) return;
    const [from, to] = [Math.min(b, a), Math.max(b, a)];
    const sites = bySite(snapshots, from, to);
    if (!sites) {
      this.summary.textContent = "This report omits allocations and frees between snapshots, because there are too many. 'floodmark serve' shows them.";
      return;
    }
    const sum = (of: "allocated" | "freed") => {
      const all = { bytes: 0, blocks: 0 };
      for (const site of sites) add(all, site[of]);
      return all;
    };
    const live = stillLive(snapshots, from, to);
    const rest = live ? ` (${formatted(live)} still live)` : "";
    this.summary.textContent = `In between: allocated ${formatted(sum("allocated"))}${rest}, freed ${formatted(sum("freed"))}.`;
    this.title.textContent = `Allocated and freed from ${a <= b ? "A to B" : "B to A"}`;
    this.element.hidden = sites.length === 0;
    this.table.replace(tableOf(sites, snapshots.groupings.includes("site") ? "site" : (snapshots.groupings[0] ?? "origin")));
  }
}

function tableOf(sites: SiteInterval[], name: string): Table {
  const rows = sites.map(({ name, allocated, freed }): Cell[] => [
    name,
    allocated.bytes,
    allocated.blocks,
    freed.bytes,
    freed.blocks,
    allocated.bytes - freed.bytes,
  ]);
  const columns: Table["columns"] = [
    { name, kind: "code" },
    { name: "allocated", kind: "bytes" },
    { name: "allocations", kind: "count" },
    { name: "freed", kind: "bytes" },
    { name: "frees", kind: "count" },
    { name: "change", kind: "change" },
  ];
  return { id: "interval", title: "Allocated and freed", note: "", columns, rows, details: [], omitted: 0, still: false };
}
