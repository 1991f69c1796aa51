// Where a page gets its document from. A report carries it along; `server.ts` asks for it.

import type { Column, Document, Moments } from "./data";
import { decode } from "./columns";
import type { Lines } from "./server";

export interface Host {
  document(): Promise<Document>;
  numbers(column: Column): Promise<Float64Array>;
  /** What was live at exactly these instants; who cannot tell has none. */
  moments?(times: number[]): Promise<Part>;
  /** Lines between two instants in full detail, for one asker at a time; who cannot tell has none. */
  lines?(from: number, to: number, asker: string): Promise<Lines>;
}

/** Instants with what they point to. */
export interface Part {
  moments: Moments;
  strings: string[];
  numbers(column: Column): Promise<Float64Array>;
}

/** What stands in the page itself. */
export const embedded: Host = {
  async document() {
    const document = JSON.parse(content("floodmark-data")) as Document;
    if (document.schema !== "floodmark.report/2") {
      throw new Error(`this page cannot show ${document.schema}`);
    }
    return document;
  },
  async numbers({ column, length }) {
    return decoded(content(`floodmark-column-${column}`), length);
  },
};

/** The numbers of a column. */
export function decoded(text: string, length: number): Promise<Float64Array> {
  return decode(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), length);
}

function content(id: string): string {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page lacks ${id}; was it cut?`);
  return element.textContent ?? "";
}
