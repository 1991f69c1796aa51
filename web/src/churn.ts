// What came and went between two instants.

import type { Cell, Document, Table } from "./data";
import { make } from "./dom";
import { bytes, count } from "./format";
import type { Instants } from "./instants";
import { TableView } from "./table";

interface Amount {
  bytes: number;
  blocks: number;
}

interface Traffic {
  name: string;
  allocated: Amount;
  freed: Amount;
}

/** Sums by name of what came after one instant and up to a later one; none if that is not known. */
function between(instants: Instants, from: number, to: number): Traffic[] | null {
  const [came, before] = [instants.came(to), instants.came(from)];
  if (!came || !before) return null;
  const [held, was] = [instants.held(to), instants.held(from)];
  const sums = new Map<string, Traffic>();
  instants.names(Math.max(0, instants.ways.indexOf("site"))).forEach((name, group) => {
    const allocated = difference(came, before, group);
    const stays = difference(held, was, group);
    // What was there or came, and is not there, has gone.
    const freed = { bytes: allocated.bytes - stays.bytes, blocks: allocated.blocks - stays.blocks };
    if (allocated.blocks === 0 && freed.blocks === 0) return;
    const known = sums.get(name);
    if (!known) sums.set(name, { name, allocated, freed });
    else {
      add(known.allocated, allocated);
      add(known.freed, freed);
    }
  });
  return [...sums.values()].sort((a, b) => b.allocated.bytes - a.allocated.bytes || b.freed.bytes - a.freed.bytes);
}

function difference(now: { bytes: Float64Array; blocks: Float64Array }, before: typeof now, group: number): Amount {
  const by = (one: "bytes" | "blocks") => (now[one][group] ?? 0) - (before[one][group] ?? 0);
  return { bytes: by("bytes"), blocks: by("blocks") };
}

function add(sum: Amount, more: Amount): void {
  sum.bytes += more.bytes;
  sum.blocks += more.blocks;
}

/** What is live at the later instant and was not at the earlier, if all of it is listed. */
function stayed(instants: Instants, from: number, to: number): Amount | null {
  const isListed = (at: number) => instants.live(at, null).length === instants.blocks[at];
  if (!isListed(from) || !isListed(to)) return null;
  const rows = instants.live(to, from);
  return { blocks: rows.length, bytes: rows.reduce((sum, row) => sum + instants.block(row).bytes, 0) };
}

function amount({ bytes: size, blocks }: Amount): string {
  return blocks === 0 ? "nothing" : `${count(blocks)} ${blocks === 1 ? "block" : "blocks"} of ${bytes(size)}`;
}

export class Churn {
  readonly says = make("p", { id: "churned", "aria-live": "polite", hidden: true });
  readonly element: HTMLElement;
  private table: TableView;
  private title = make("h3");

  constructor(data: Document) {
    this.table = new TableView(data, tableOf([], "site"));
    this.element = make(
      "div",
      { id: "between", hidden: true },
      this.title,
      make("p", { class: "note" }, "After the earlier instant, up to and with the later one. Blocks whose address was allocated again count as freed."),
      this.table.element,
    );
  }

  /** Shows what came and went between B and A, whichever is earlier; nothing if there is no A. */
  show(instants: Instants, one: number, other: number | null): void {
    this.says.hidden = other === null;
    this.element.hidden = true;
    if (other === null) return;
    const [from, to] = [Math.min(one, other), Math.max(one, other)];
    const traffic = between(instants, from, to);
    if (!traffic) {
      this.says.textContent = "How much was allocated and freed in between is not kept here: there was too much of it. 'floodmark serve' tells.";
      return;
    }
    const sum = (of: "allocated" | "freed") => {
      const all = { bytes: 0, blocks: 0 };
      for (const one of traffic) add(all, one[of]);
      return all;
    };
    const [came, went] = [sum("allocated"), sum("freed")];
    const stays = stayed(instants, from, to);
    const rest = stays ? `; ${amount(stays)} came and stayed` : "";
    this.says.textContent = `In between ${amount(came)} ${came.blocks > 1 ? "were" : "was"} allocated and ${amount(went)} freed${rest}.`;
    this.title.textContent = `Allocated and freed from ${other <= one ? "A to B" : "B to A"}`;
    this.element.hidden = traffic.length === 0;
    this.table.replace(tableOf(traffic, instants.ways.includes("site") ? "site" : (instants.ways[0] ?? "who")));
  }
}

function tableOf(traffic: Traffic[], name: string): Table {
  const rows = traffic.map(({ name, allocated, freed }): Cell[] => [
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
  return { id: "between", title: "Allocated and freed", note: "", columns, rows, details: [], omitted: 0, still: false };
}
