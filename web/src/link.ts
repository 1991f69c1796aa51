// Encodes the current view in the fragment of the page's address, so that a link opens the same view.
//
// The rest of the address is neither read nor changed, because that of a served page contains a token. Fragments are
// untrusted; invalid parts are ignored.

import type { Cursor, Span } from "./cursor";
import { exactSeconds } from "./format";
import type { Top } from "./snapshots";

const NS = 1e9;
/** Milliseconds without a change before the address is written: browsers limit how often it may change. */
const SETTLE_MS = 200;
const KEYS = ["at", "with", "from", "to", "by", "top", "find", "tab", "chart", "stack"];

/** Nanoseconds since the origin, or the peak, which may be between two events of the same time. */
export type Instant = number | "peak";

/** What the reader has chosen. */
export interface View {
  at: Instant | null;
  /** The instant that `at` is compared with. */
  with: Instant | null;
  span: Span | null;
  by: string;
  top: Top;
  find: string;
  /** The lower tab, the timeline and what it is divided by; empty for the first of each. */
  tab: string;
  chart: string;
  stack: string;
}

export const DEFAULT_VIEW: View = { at: null, with: null, span: null, by: "", top: "outermost", find: "", tab: "", chart: "", stack: "" };

/** Parses a fragment into a view and the id of a section to scroll to. */
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
    tab: values.get("tab") ?? "",
    chart: values.get("chart") ?? "",
    stack: values.get("stack") ?? "",
  };
  const section = [...values].find(([key, value]) => value === "" && !KEYS.includes(key))?.[0] ?? null;
  return { view: KEYS.some((key) => values.has(key)) ? view : null, section };
}

/** Formats a view as a fragment; empty for the default view. */
export function fragment({ at, with: other, span, by, top, find, tab, chart, stack }: View): string {
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
  for (const [key, value] of Object.entries({ find, tab, chart, stack })) if (value) values.set(key, value);
  return values.toString();
}

export class Link {
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private page: {
      view(): View;
      restore(view: View): Promise<void>;
      /** Shows the section with an id, if it exists. */
      reveal(id: string): void;
    },
    private cursor: Cursor,
  ) {}

  /** Restores the view of the address, and updates the address from then on. */
  async start(): Promise<void> {
    await this.open();
    this.cursor.onChange(() => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.write(null), SETTLE_MS);
    });
    addEventListener("hashchange", () => {
      const { view, section } = parse(location.hash);
      // A link within the page leads to a section and keeps the view.
      if (view) void this.open();
      else {
        if (section !== null) this.page.reveal(section);
        this.write(section);
      }
    });
  }

  private async open(): Promise<void> {
    const { view, section } = parse(location.hash);
    if (view) await this.page.restore(view);
    // The section did not exist yet when the browser tried to scroll to it.
    if (section !== null) this.page.reveal(section);
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
      // A page in a frame may not be allowed to change its address.
    }
  }
}
