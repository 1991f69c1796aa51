// A map of address usage, and a map of the memory of ranks.

import type { AddressMap, Document, RankMap } from "./data";
import type { Host, SnapshotData } from "./host";
import type { Cursor } from "./cursor";
import { section } from "./dom";
import { bytes, seconds, share } from "./format";
import { HeatMap } from "./heat";
import type { Snapshots } from "./snapshots";

const NS = 1e9;

export async function mapSections(data: Document, snapshotData: SnapshotData, snapshots: Snapshots, cursor: Cursor): Promise<HTMLElement[]> {
  const sections: HTMLElement[] = [];
  const { maps } = snapshotData.columns;
  for (const [at, map] of maps.entries()) {
    const [indices, used] = await Promise.all([snapshotData.numbers(map.snapshots), snapshotData.numbers(map.taken)]);
    const times = Array.from(indices, (index) => snapshots.times[index] ?? 0);
    const view = new HeatMap(
      {
        title: `Addresses in use over time, ${map.title}`,
        rows: map.cells,
        times,
        span: data.span,
        values: used,
        labels: labelsOf(map),
        hasLines: true,
        describe: (column, row) => {
          const part = (used[column * map.cells + row] ?? 0) / 255;
          return `${when(times, column, data)}: ${share(part)} of ${bytes(map.cell)} at ${address(map, row)} in use`;
        },
      },
      cursor,
    );
    const note =
      "Darker cells are more in use. Light gaps between dark bands are fragmentation. Address ranges that were never used are omitted, at the horizontal lines.";
    const title = maps.length > 1 ? `Addresses of ${map.title}` : "Addresses over time";
    sections.push(section(`addresses-${at}`, title, note, view.element));
  }
  return sections;
}

/** Returns a map of the memory of ranks. */
export async function rankSection(host: Host, data: Document, ranks: RankMap, cursor: Cursor): Promise<HTMLElement> {
  const [starts, values] = await Promise.all([host.numbers(ranks.times), host.numbers(ranks.cells)]);
  const times = Array.from(starts);
  const name = (row: number) => {
    const [first, last] = ranks.rows[row] ?? [0, 0];
    return first === last ? `rank ${first}` : `ranks ${first} to ${last}`;
  };
  const rows = ranks.rows.length;
  const describe = (column: number, row: number) => {
    const value = values[column * rows + row] ?? 0;
    return `${when(times, column, data)}: ${name(row)} ${value === 0 ? "did not run" : `about ${bytes((value / 255) * ranks.highest)}`}`;
  };
  const labels = ranks.rows.map((_, row) => ({ row, text: name(row) }));
  const view = new HeatMap({ title: "Resident memory of ranks over time", rows, times, span: data.span, values, labels, hasLines: false, describe }, cursor);
  return section("rank-map", "Ranks", `Darker cells took more; the darkest took ${bytes(ranks.highest)}.`, view.element);
}

function when(times: number[], column: number, data: Document): string {
  return seconds((times[column] ?? 0) / NS, data.span / NS);
}

/** Returns the start address of a cell. */
function address(map: AddressMap, cell: number): string {
  let offset = cell * map.cell;
  for (const [start, length] of map.bands) {
    if (offset < length) return `0x${(BigInt(start) + BigInt(Math.floor(offset))).toString(16)}`;
    offset -= length;
  }
  return "";
}

/** Returns the start of each address range and the end of the last one. */
function labelsOf(map: AddressMap): { row: number; text: string }[] {
  const labels: { row: number; text: string }[] = [];
  let offset = 0;
  for (const [start, length] of map.bands) {
    labels.push({ row: offset / map.cell, text: start });
    offset += length;
  }
  const last = map.bands[map.bands.length - 1];
  if (last) labels.push({ row: Math.max(map.cells, offset / map.cell), text: `0x${(BigInt(last[0]) + BigInt(last[1])).toString(16)}` });
  return labels;
}
