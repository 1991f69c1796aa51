// What is looked at, as the fragment of the page's address: who opens it sees the same.
//
// The rest of the address is never read or changed here: behind a server it has a token in it. Fragments come
// from anybody; what makes no sense in them is passed over.

import type { Cursor, Span } from "./cursor";
import { exactSeconds } from "./format";
import type { Top } from "./instants";

const NS = 1e9;
/** How long a view has to stand still, in milliseconds: browsers count how often an address changes. */
const STILL = 200;
const KEYS = ["at", "with", "from", "to", "by", "top", "find"];

/** Nanoseconds since the origin, or the peak, which may lie within an instant. */
export type Instant = number | "peak";

/** What a reader has chosen; all of it may be left at what a page begins with. */
export interface View {
  at: Instant | null;
  /** What it is compared with. */
  with: Instant | null;
  span: Span | null;
  by: string;
  top: Top;
  find: string;
}

export const NOTHING: View = { at: null, with: null, span: null, by: "", top: "outermost", find: "" };

/** Reads a fragment: a view, and a section to begin at. */
export function parse(fragment: string): { view: View | null; section: string | null } {
  const values = new URLSearchParams(fragment.replace(/^#/, ""));
  const seconds = (key: string) => {
    const text = values.get(key) ?? "";
    return /^\d{1,9}(\.\d{1,12})?$/.test(text) ? Math.round(Number(text) * NS) : null;
  };
  const instant = (key: string) => (values.get(key) === "peak" ? "peak" : seconds(key));
  const [from, to] = [seconds("from"), seconds("to")];
  const view: View = {
    at: instant("at"),
    with: instant("with"),
    span: from !== null && to !== null && from < to ? { from, to } : null,
    by: values.get("by") ?? "",
    top: values.get("top") === "innermost" ? "innermost" : "outermost",
    find: values.get("find") ?? "",
  };
  const section = [...values].find(([key, value]) => value === "" && !KEYS.includes(key))?.[0] ?? null;
  return { view: KEYS.some((key) => values.has(key)) ? view : null, section };
}

/** Writes one; empty if it is what a page begins with. */
export function fragment({ at, with: other, span, by, top, find }: View): string {
  const values = new URLSearchParams();
  const seconds = (time: number) => exactSeconds(Math.max(0, time)).replace("s", "");
  const instant = (time: Instant) => (time === "peak" ? time : seconds(time));
  if (at !== null) values.set("at", instant(at));
  if (other !== null) values.set("with", instant(other));
  if (span) {
    values.set("from", seconds(span.from));
    values.set("to", seconds(span.to));
  }
  if (by) values.set("by", by);
  if (top !== "outermost") values.set("top", top);
  if (find) values.set("find", find);
  return values.toString();
}

export class Link {
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private page: {
      /** What is looked at. */
      view(): View;
      restore(view: View): Promise<void>;
    },
    private cursor: Cursor,
  ) {}

  /** Shows what the address asks for, and follows what is looked at from then on. */
  async begin(): Promise<void> {
    await this.open();
    this.cursor.onChange(() => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.write(null), STILL);
    });
    addEventListener("hashchange", () => {
      const { view, section } = parse(location.hash);
      // A link of the page itself leads to a section; what is looked at stays.
      if (view) void this.open();
      else this.write(section);
    });
  }

  private async open(): Promise<void> {
    const { view, section } = parse(location.hash);
    if (view) await this.page.restore(view);
    // Sections were not there yet when a browser looked for them.
    if (section !== null) document.getElementById(section)?.scrollIntoView();
  }

  private write(section: string | null): void {
    clearTimeout(this.timer);
    const next = fragment(this.page.view());
    const now = parse(location.hash);
    if (next === "" && !now.view) return;
    const parts = [section && encodeURIComponent(section), next].filter((part) => part);
    try {
      history.replaceState(history.state, "", `#${parts.join("&")}`);
    } catch {
      // A page within another may have no address of its own.
    }
  }
}
