// Sources of a page's document. A report embeds it; `server.ts` requests it from a server.

import type { Column, Document, SnapshotColumns } from "./data";
import { decode } from "./columns";
import type { DetailedCharts } from "./server";

export interface Host {
  document(): Promise<Document>;
  numbers(column: Column): Promise<Float64Array>;
  /** Returns snapshots at exactly these times; absent if the host cannot compute them. */
  snapshots?(times: number[]): Promise<SnapshotData>;
  /** Returns the charts between two times in full detail; absent if the host cannot. A new request of the same
   * `requester` cancels its previous one. */
  range?(from: number, to: number, requester: string): Promise<DetailedCharts>;
}

/** Snapshots with the strings and columns they refer to. */
export interface SnapshotData {
  columns: SnapshotColumns;
  strings: string[];
  numbers(column: Column): Promise<Float64Array>;
}

/** The document that is embedded in the page. */
export const embedded: Host = {
  async document() {
    const document = JSON.parse(content("floodmark-data")) as Document;
    if (document.schema !== "floodmark.report/5") {
      throw new Error(`unsupported schema ${document.schema}`);
    }
    return document;
  },
  async numbers({ column, length }) {
    return decoded(content(`floodmark-column-${column}`), length);
  },
};

/** Decodes the numbers of a column. */
export function decoded(text: string, length: number): Promise<Float64Array> {
  return decode(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), length);
}

function content(id: string): string {
  const element = document.getElementById(id);
  if (!element) throw new Error(`${id} is missing; the file may be truncated`);
  return element.textContent ?? "";
}
