// Who held memory, as an icicle: callers above, callees below, as wide as their bytes.
//
// Drawn on a canvas, because there may be twenty thousand calls. A table beside it says the same to
// those who cannot see it.

import type { Document, Table, Tree } from "./data";
import type { Host } from "./host";
import { make, section, style } from "./dom";
import { bytes, count, share } from "./format";
import { tableView } from "./table";
import { onColors } from "./theme";

const ROW = 20;
/** Boxes narrower than this are not drawn. */
const NARROWEST = 0.4;
const MOST_LEVELS = 60;

interface Node {
  text: string;
  bytes: number;
  blocks: number;
  parent: Node | null;
  children: Node[];
  depth: number;
  /** Where it begins, as a part of all. */
  from: number;
}

interface Box {
  node: Node;
  x: number;
  y: number;
  width: number;
}

export async function icicleSection(host: Host, data: Document, tree: Tree): Promise<HTMLElement> {
  const root = await grow(host, data, tree);
  const icicle = new Icicle(root);
  const whole = section("holders", tree.title, tree.note, icicle.element);
  const details = make("details", {}, make("summary", {}, "The same as a table"));
  // Twenty thousand rows are made only if somebody wants them.
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(tableView(data, asTable(root)));
  });
  whole.append(details);
  return whole;
}

async function grow(host: Host, data: Document, tree: Tree): Promise<Node> {
  const columns = [tree.parents, tree.texts, tree.bytes, tree.blocks];
  const [parents, texts, sizes, blocks] = await Promise.all(columns.map((column) => host.numbers(column)));
  const root: Node = { text: "all", bytes: tree.total, blocks: 0, parent: null, children: [], depth: 0, from: 0 };
  const nodes: Node[] = [];
  for (let at = 0; at < tree.parents.length; at++) {
    const parent = nodes[(parents?.[at] ?? 0) - 1] ?? root;
    const node: Node = {
      text: data.strings[texts?.[at] ?? -1] ?? "?",
      bytes: sizes?.[at] ?? 0,
      blocks: blocks?.[at] ?? 0,
      parent,
      children: [],
      depth: parent.depth + 1,
      from: 0,
    };
    if (parent === root) root.blocks += node.blocks;
    parent.children.push(node);
    nodes.push(node);
  }
  const place = (node: Node) => {
    node.children.sort((a, b) => b.bytes - a.bytes);
    let from = node.from;
    for (const child of node.children) {
      child.from = from;
      from += child.bytes;
    }
  };
  place(root);
  nodes.forEach(place);
  return root;
}

function asTable(root: Node): Table {
  const rows: Table["rows"] = [];
  const add = (node: Node) => {
    const own = node.bytes - node.children.reduce((sum, child) => sum + child.bytes, 0);
    if (node.depth > 0) {
      rows.push([node.depth, node.text, node.bytes, own, node.bytes / Math.max(1, root.bytes), node.blocks]);
    }
    node.children.forEach(add);
  };
  add(root);
  return {
    id: "calls",
    title: "Calls",
    note: "",
    columns: [
      { name: "depth", kind: "number" },
      { name: "call", kind: "code" },
      { name: "bytes", kind: "bytes" },
      { name: "of its own", kind: "bytes" },
      { name: "share", kind: "share" },
      { name: "blocks", kind: "count" },
    ],
    rows,
    details: [],
    omitted: 0,
  };
}

class Icicle {
  readonly element: HTMLElement;
  private canvas = make("canvas", { tabindex: 0, role: "application" });
  private says = make("p", { class: "says", "aria-live": "polite" });
  private crumbs = make("nav", { class: "crumbs", "aria-label": "Callers" });
  private boxes: Box[] = [];
  private focus: Node;
  private chosen: Node;

  constructor(private root: Node) {
    this.focus = this.chosen = root;
    const help = "Click a call to see it as wide as the page; click above it to come back. With the keyboard: arrows move, Enter goes in, Escape comes out.";
    this.canvas.setAttribute("aria-label", `Calls that held memory at the peak. ${help}`);
    this.element = make("div", { class: "icicle" }, this.crumbs, this.canvas, this.says, make("p", { class: "note" }, help));
    this.canvas.addEventListener("mousemove", (event) => this.point(this.at(event)));
    this.canvas.addEventListener("click", (event) => {
      const node = this.at(event);
      if (node) this.enter(node);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
    onColors(() => this.draw());
    this.enter(root);
  }

  private enter(node: Node): void {
    this.focus = this.chosen = node;
    this.crumbs.replaceChildren();
    const path: Node[] = [];
    for (let at: Node | null = node; at; at = at.parent) path.unshift(at);
    for (const one of path) {
      const crumb = make("button", { type: "button", click: () => this.enter(one) }, one.text);
      if (one === node) crumb.setAttribute("aria-current", "true");
      this.crumbs.append(crumb);
    }
    this.say();
    this.draw();
  }

  private point(node: Node | null): void {
    if (!node || node === this.chosen) return;
    this.chosen = node;
    this.say();
    this.draw();
  }

  private say(): void {
    const { text, bytes: size, blocks } = this.chosen;
    const part = share(size / Math.max(1, this.root.bytes));
    this.says.textContent = `${text}: ${bytes(size)}, ${part} of the peak, ${count(blocks)} ${blocks === 1 ? "block" : "blocks"}`;
  }

  private at(event: MouseEvent): Node | null {
    const box = this.boxes.find(
      ({ x, y, width }) => event.offsetX >= x && event.offsetX < x + width && event.offsetY >= y && event.offsetY < y + ROW,
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

  /** Boxes in sight: callers of the focus at full width, and all below it. */
  private layout(width: number): Box[] {
    const boxes: Box[] = [];
    const above: Node[] = [];
    for (let at: Node | null = this.focus; at; at = at.parent) above.unshift(at);
    above.forEach((node, level) => boxes.push({ node, x: 0, y: level * ROW, width }));
    const scale = width / Math.max(1, this.focus.bytes);
    const pending = [...this.focus.children];
    for (let node = pending.pop(); node; node = pending.pop()) {
      const box = { node, x: (node.from - this.focus.from) * scale, y: node.depth * ROW, width: node.bytes * scale };
      if (box.width < NARROWEST || node.depth > MOST_LEVELS + this.focus.depth) continue;
      boxes.push(box);
      pending.push(...node.children);
    }
    return boxes;
  }

  private draw(): void {
    const width = this.element.clientWidth;
    if (width === 0) return;
    this.boxes = this.layout(width);
    const height = this.boxes.reduce((low, box) => Math.max(low, box.y + ROW), ROW);
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    if (!context) return;
    context.scale(ratio, ratio);
    context.font = `12px ${style("--mono") || "monospace"}`;
    context.textBaseline = "middle";
    const [ink, edge, lightness, chosen] = ["--box-text", "--page", "--box-light", "--chosen"].map(style);
    for (const { node, x, y, width } of this.boxes) {
      const inner = Math.max(0.5, width - 1);
      context.globalAlpha = node.depth < this.focus.depth ? 0.5 : 1;
      context.fillStyle = node === this.chosen ? (chosen ?? "") : `hsl(${hue(node.text)} 55% ${lightness})`;
      context.fillRect(x, y, inner, ROW - 1);
      context.globalAlpha = 1;
      if (inner > 24) {
        context.fillStyle = node === this.chosen ? (edge ?? "") : (ink ?? "");
        context.save();
        context.beginPath();
        context.rect(x, y, inner - 3, ROW);
        context.clip();
        context.fillText(label(node.text, inner), x + 4, y + ROW / 2);
        context.restore();
      }
    }
  }
}

/** As much of a frame as fits; canvas text this small is about seven pixels a letter. */
function label(text: string, width: number): string {
  const most = Math.floor(width / 7.2) - 1;
  return text.length <= most ? text : `${text.slice(0, Math.max(0, most - 1))}…`;
}

/** The same color for the same function, whatever its line. */
function hue(text: string): number {
  let hash = 0;
  for (const c of text.split(" (")[0] ?? "") hash = (hash * 31 + (c.codePointAt(0) ?? 0)) >>> 0;
  return hash % 360;
}
