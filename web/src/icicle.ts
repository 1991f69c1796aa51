// An icicle graph of the memory held: callers above, callees below, as wide as their bytes.
//
// It is drawn on a canvas, because there may be twenty thousand calls. A table has the same content for screen readers.

import { type Node, type Top, isFolded } from "./snapshots";
import type { Table } from "./data";
import { cleared, copy, make, style } from "./dom";
import { bytes, change, count, share } from "./format";
import { type Matches, matches } from "./search";
import { onColors } from "./theme";

const ROW = 20;
/** Height of a run of folded frames, which is a thin line without text. */
const SEAM = 5;
/** Boxes narrower than this, in pixels, are not drawn. */
const MIN_WIDTH = 0.4;
const MAX_LEVELS = 60;

interface Box {
  node: Node;
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Orientation and mode of the graph. */
export interface Mode {
  /** Whether two snapshots are compared. */
  compares: boolean;
  top: Top;
}

/** Returns the graph as a table, depth first. */
export function asTable(root: Node, { compares, top }: Mode): Table {
  // With the innermost calls on top, the first level already shows what calls hold themselves.
  const hasSelf = !compares && top === "outermost";
  const rows: Table["rows"] = [];
  const add = (node: Node) => {
    const self = node.bytes - node.children.reduce((sum, child) => sum + child.bytes, 0);
    if (node.depth > 0) {
      const figures = compares
        ? [node.before, node.bytes, node.bytes - node.before]
        : [node.bytes, ...(hasSelf ? [self] : []), node.bytes / Math.max(1, root.bytes)];
      rows.push([node.depth, node.text, ...figures, node.blocks]);
    }
    node.children.forEach(add);
  };
  add(root);
  const figures: Table["columns"] = compares
    ? [
        { name: "at A", kind: "bytes" },
        { name: "at B", kind: "bytes" },
        { name: "change", kind: "change" },
      ]
    : [
        { name: "bytes", kind: "bytes" },
        ...(hasSelf ? [{ name: "self", kind: "bytes" as const }] : []),
        { name: "share", kind: "share" },
      ];
  return {
    id: "calls",
    title: "Calls",
    note: "",
    columns: [{ name: "depth", kind: "number" }, { name: "call", kind: "code" }, ...figures, { name: "blocks", kind: "count" }],
    rows,
    details: [],
    omitted: 0,
    still: false,
  };
}

export class Icicle {
  readonly element: HTMLElement;
  private canvas = make("canvas", { tabindex: 0, role: "application" });
  private description = make("p", { class: "description", "aria-live": "polite" });
  private crumbs = make("nav", { class: "crumbs" });
  private box = make("input", { type: "search", placeholder: "Search calls", "aria-label": "Search calls", "aria-describedby": "found" });
  private found = make("p", { id: "found", role: "status", hidden: true });
  private resetButton = make("button", { type: "button", title: "Show all calls and end the search" }, "Reset");
  private copyButton = make("button", { type: "button", title: "Copy the call under the pointer with its callers" }, "Copy path");
  private matches: Matches | null = null;
  /** Index of the match that was entered last. */
  private matchIndex = -1;
  private boxes: Box[] = [];
  private focus: Node;
  private chosen: Node;

  constructor(
    private root: Node,
    private mode: Mode,
    /** Controls to show next to the search box. */
    tools: HTMLElement[],
    /** Called when the search text changes. */
    private onSearch: () => void,
  ) {
    this.focus = this.chosen = root;
    const help = "Click a call to zoom in, click a call above it to zoom out. Keyboard: arrows move, Enter zooms in, Escape zooms out.";
    this.canvas.setAttribute("aria-label", `Memory held by call. ${help}`);
    const bar = make("div", { class: "tools" }, ...tools, this.box, this.resetButton, this.copyButton);
    this.resetButton.addEventListener("click", () => this.reset());
    this.copyButton.addEventListener("click", () => void this.copyPath());
    this.element = make("div", { class: "icicle" }, bar, this.found, this.crumbs, this.canvas, this.description, make("p", { class: "note" }, help));
    this.canvas.addEventListener("mousemove", (event) => this.point(this.at(event)));
    this.canvas.addEventListener("click", (event) => {
      const node = this.at(event);
      if (node) this.enter(node);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("input", () => {
      this.search();
      this.onSearch();
    });
    this.box.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1);
    });
    new ResizeObserver(() => this.draw()).observe(this.element);
    onColors(() => this.draw());
    this.enter(root);
  }

  /** The search text; empty without a search. */
  get query(): string {
    return this.box.value;
  }

  set query(text: string) {
    this.box.value = text;
    this.search();
  }

  /** Shows another snapshot; keeps the call that is zoomed in, if it exists there. */
  show(root: Node, mode: Mode): void {
    const path: string[] = [];
    const isInverted = mode.top !== this.mode.top;
    for (let at: Node | null = this.focus; at?.parent && !isInverted; at = at.parent) path.unshift(at.text);
    this.mode = mode;
    this.root = root;
    let node = root;
    for (const text of path) {
      const next = node.children.find((child) => child.text === text);
      if (!next) break;
      node = next;
    }
    this.crumbs.setAttribute("aria-label", mode.top === "outermost" ? "Callers" : "Callees");
    this.find();
    this.enter(node);
  }

  private search(): void {
    this.find();
    this.draw();
  }

  /** Finds the calls that match the search and shows how much they hold. */
  private find(): void {
    this.matchIndex = -1;
    this.matches = matches(this.root, this.query);
    this.found.hidden = this.matches === null;
    if (!this.matches) return;
    this.found.textContent = this.matchSummary(this.matches);
    this.found.title = `${count(this.matches.bytes)} bytes`;
  }

  private matchSummary({ nodes, bytes: held, before }: Matches): string {
    if (nodes.size === 0) return "No call matches.";
    const calls = nodes.size === 1 ? "1 call matches" : `${count(nodes.size)} calls match`;
    const part = `${share(held / Math.max(1, this.root.bytes))} of the total`;
    const by = this.mode.compares ? ` at B, ${change(held - before)} since A` : "";
    const more = nodes.size === 1 ? "Press Enter to go to it." : "Press Enter to step through them.";
    return `${calls}: ${bytes(held)}, ${part}${by}. ${more}`;
  }

  /** Enters the next match; the first is the largest. */
  private next(by: 1 | -1): void {
    const { outer = [] } = this.matches ?? {};
    if (outer.length === 0) return;
    this.matchIndex = this.matchIndex < 0 && by < 0 ? outer.length - 1 : (this.matchIndex + by + outer.length) % outer.length;
    const node = outer[this.matchIndex];
    if (node) this.enter(node);
  }

  /** Enters the largest match of the search, if there is one. */
  enterFirst(): void {
    this.matchIndex = -1;
    this.next(1);
  }

  private enter(node: Node): void {
    this.focus = this.chosen = node;
    this.crumbs.replaceChildren();
    this.crumbs.classList.toggle("root", node.parent === null);
    const path: Node[] = [];
    for (let at: Node | null = node; at; at = at.parent) path.unshift(at);
    for (const one of path) {
      const crumb = make("button", { type: "button", click: () => this.enter(one) }, one.text);
      if (one === node) crumb.setAttribute("aria-current", "true");
      this.crumbs.append(crumb);
    }
    this.describe();
    this.draw();
  }

  /** Shows all calls and ends the search. */
  private reset(): void {
    this.query = "";
    this.enter(this.root);
    this.onSearch();
  }

  /** Copies the chosen call with its callers, one per line with the outermost first. */
  private async copyPath(): Promise<void> {
    const path: string[] = [];
    for (let at: Node | null = this.chosen; at?.parent; at = at.parent) path.unshift(at.text);
    const isCopied = await copy(path.join("\n"));
    this.description.textContent = isCopied ? `Copied ${count(path.length)} ${path.length === 1 ? "call" : "calls"}.` : "The browser did not allow copying.";
  }

  private point(node: Node | null): void {
    if (!node || node === this.chosen) return;
    this.chosen = node;
    this.describe();
    this.draw();
  }

  private describe(): void {
    const { text, bytes: size, before, blocks } = this.chosen;
    const part = this.mode.compares ? change(size - before) : `${share(size / Math.max(1, this.root.bytes))} of the total`;
    this.description.textContent = `${text}: ${bytes(size)}, ${part}, ${count(blocks)} ${blocks === 1 ? "block" : "blocks"}`;
  }

  private at(event: MouseEvent): Node | null {
    const box = this.boxes.find(
      ({ x, y, width, height }) => event.offsetX >= x && event.offsetX < x + width && event.offsetY >= y && event.offsetY < y + height,
    );
    return box?.node ?? null;
  }

  private key(event: KeyboardEvent): void {
    const siblings = this.chosen.parent?.children ?? [this.chosen];
    const place = siblings.indexOf(this.chosen);
    const go: Record<string, Node | null | undefined> = {
      ArrowDown: this.chosen.children[0],
      ArrowUp: this.chosen === this.focus ? null : this.chosen.parent,
      ArrowRight: this.chosen === this.focus ? null : siblings[place + 1],
      ArrowLeft: this.chosen === this.focus ? null : siblings[place - 1],
    };
    if (event.key in go) this.point(go[event.key] ?? null);
    else if (event.key === "Enter") this.enter(this.chosen);
    else if (event.key === "Escape") this.enter(this.focus.parent ?? this.root);
    else return;
    event.preventDefault();
  }

  /** Returns the visible boxes: callers of the focus at full width, and all calls below it. */
  private layout(width: number): Box[] {
    const boxes: Box[] = [];
    const above: Node[] = [];
    for (let at: Node | null = this.focus; at; at = at.parent) above.unshift(at);
    let below = 0;
    for (const node of above) {
      const height = heightOf(node);
      boxes.push({ node, x: 0, y: below, width, height });
      below += height;
    }
    const scale = width / Math.max(1, this.focus.size);
    const pending = this.focus.children.map((node) => ({ node, y: below }));
    for (let next = pending.pop(); next; next = pending.pop()) {
      const { node, y } = next;
      const box = { node, x: (node.from - this.focus.from) * scale, y, width: node.size * scale, height: heightOf(node) };
      if (box.width < MIN_WIDTH || node.depth > MAX_LEVELS + this.focus.depth) continue;
      boxes.push(box);
      for (const child of node.children) pending.push({ node: child, y: y + box.height });
    }
    return boxes;
  }

  private color(node: Node, lightness: string): string {
    if (this.mode.compares) return changeColor(node, lightness);
    // Folded frames are gray.
    return isFolded(node.text) ? `hsl(0 0% ${lightness})` : `hsl(${hue(node.text)} 55% ${lightness})`;
  }

  private draw(): void {
    const width = this.element.clientWidth;
    if (width === 0) return;
    this.boxes = this.layout(width);
    const height = this.boxes.reduce((low, box) => Math.max(low, box.y + box.height), ROW);
    const context = cleared(this.canvas, width, height);
    if (!context) return;
    context.font = `12px ${style("--mono") || "monospace"}`;
    context.textBaseline = "middle";
    const [ink, edge, lightness, chosen] = ["--box-text", "--page", "--box-light", "--chosen"].map(style);
    for (const { node, x, y, width, height } of this.boxes) {
      const inner = Math.max(0.5, width - 1);
      const isMatch = this.matches?.nodes.has(node) ?? false;
      const isDim = this.matches !== null && !isMatch;
      context.globalAlpha = isDim ? 0.25 : node.depth < this.focus.depth ? 0.5 : 1;
      context.fillStyle = node === this.chosen ? (chosen ?? "") : this.color(node, lightness ?? "");
      context.fillRect(x, y, inner, height - 1);
      context.globalAlpha = 1;
      // An outline, because differences in color alone are not accessible.
      if (isMatch) outline(context, { x, y, width: inner, height }, ink ?? "");
      if (inner > 24 && height === ROW) {
        context.fillStyle = node === this.chosen && !isDim ? (edge ?? "") : (ink ?? "");
        context.globalAlpha = isDim ? 0.7 : 1;
        context.save();
        context.beginPath();
        context.rect(x, y, inner - 3, ROW);
        context.clip();
        // The change is also written, because color alone is not accessible.
        const by = this.mode.compares && node.bytes !== node.before ? `${change(node.bytes - node.before)} ` : "";
        context.fillText(label(by + node.text, inner), x + 4, y + ROW / 2);
        context.restore();
      }
    }
  }
}

/** Returns the height of a node's box. */
function heightOf(node: Node): number {
  return isFolded(node.text) ? SEAM : ROW;
}

function outline(context: CanvasRenderingContext2D, { x, y, width, height }: Omit<Box, "node">, ink: string): void {
  context.fillStyle = ink;
  if (width <= 4 || height < ROW) context.fillRect(x, y, width, height - 1);
  else {
    context.strokeStyle = ink;
    context.lineWidth = 2;
    context.strokeRect(x + 1, y + 1, width - 2, ROW - 3);
  }
}

/** Returns red for growth and blue for shrinkage, more saturated for larger changes. */
function changeColor(node: Node, lightness: string): string {
  const by = (node.bytes - node.before) / Math.max(1, node.size);
  return `hsl(${by < 0 ? 212 : 8} ${Math.round(12 + 68 * Math.sqrt(Math.abs(by)))}% ${lightness})`;
}

/** Shortens a frame to a width; letters of this font are about seven pixels wide. */
function label(text: string, width: number): string {
  const most = Math.floor(width / 7.2) - 1;
  if (text.length <= most) return text;
  if (isFolded(text)) return "…";
  // File names matter more than their directories, and function names more than file names.
  const shorter = [text.replace(/([([])[^()[\]]*\/([^()[\]/]+[)\]])$/, "$1…/$2"), text.replace(/ [([][^()[\]]*[)\]]$/, "")];
  const fits = shorter.find(({ length }) => length <= most);
  return fits ?? `${text.slice(0, Math.max(0, most - 1))}…`;
}

/** Returns the same hue for the same function on any line. */
function hue(text: string): number {
  let hash = 0;
  for (const c of text.split(" (")[0] ?? "") hash = (hash * 31 + (c.codePointAt(0) ?? 0)) >>> 0;
  return hash % 360;
}
