// What was live at some instants: reads the columns, and adds up what groups held.

import type { Forest, Moments } from "./data";
import type { Part } from "./host";
import { lastUpTo } from "./cursor";

/** Bytes and blocks by group. */
export interface Sums {
  bytes: Float64Array;
  blocks: Float64Array;
}

/** A call, a place or a name, and what was held below it. */
export interface Node {
  text: string;
  /** What was held, and at the instant it is compared with. */
  bytes: number;
  before: number;
  blocks: number;
  /** How wide it is drawn: as much as it held, or the larger of both. */
  size: number;
  parent: Node | null;
  children: Node[];
  depth: number;
  /** Where it begins, as a part of all. */
  from: number;
}

/** What stands on top: the outermost callers, or who allocates with its callers below. */
export type Top = "outermost" | "innermost";

interface Trees {
  forest: Forest;
  parents: Float64Array;
  texts: Float64Array;
  leaves: Float64Array;
}

/** Sums that change at instants, by group and then by instant. */
interface Steps {
  moments: Float64Array;
  bytes: Float64Array;
  blocks: Float64Array;
  /** Where the steps of each group begin, and behind the last where they end. */
  starts: Float64Array;
}

async function stepped(part: Part, columns: Moments["steps"], count: number): Promise<Steps> {
  const order = [columns.groups, columns.moments, columns.bytes, columns.blocks];
  const [groups, moments, bytes, blocks] = (await Promise.all(order.map((column) => part.numbers(column)))) as [
    Float64Array,
    Float64Array,
    Float64Array,
    Float64Array,
  ];
  const starts = new Float64Array(count + 1);
  for (const group of groups) starts[group + 1] = (starts[group + 1] ?? 0) + 1;
  for (let group = 1; group < starts.length; group++) starts[group] = (starts[group] ?? 0) + (starts[group - 1] ?? 0);
  return { moments, bytes, blocks, starts };
}

/** The sums of an instant. */
function sumsAt({ moments, bytes, blocks, starts }: Steps, at: number): Sums {
  const count = starts.length - 1;
  const sums = { bytes: new Float64Array(count), blocks: new Float64Array(count) };
  for (let group = 0; group < count; group++) {
    const [start, end] = [starts[group] ?? 0, starts[group + 1] ?? 0];
    const step = lastUpTo(moments.subarray(start, end), at);
    if (step < 0) continue;
    sums.bytes[group] = bytes[start + step] ?? 0;
    sums.blocks[group] = blocks[start + step] ?? 0;
  }
  return sums;
}

type Names = "first" | "after" | "groups" | "bytes" | "high" | "low" | "times" | "threads" | "streams" | "sites";

function node(text: string, parent: Node | null): Node {
  return { text, bytes: 0, before: 0, blocks: 0, size: 0, parent, children: [], depth: parent ? parent.depth + 1 : 0, from: 0 };
}

/** Whether a text stands for frames that say little. */
export function isFolded(text: string): boolean {
  return text.startsWith("… ");
}

/** Puts the widest first, one beside the other. */
function place(node: Node): void {
  node.children.sort((a, b) => b.size - a.size);
  let from = node.from;
  for (const child of node.children) {
    child.from = from;
    from += child.size;
    place(child);
  }
}

export class Instants {
  private constructor(
    readonly part: Part,
    readonly times: Float64Array,
    readonly bytes: Float64Array,
    readonly blocks: Float64Array,
    private steps: Steps,
    private arrivals: Steps | null,
    private trees: Trees[],
    private listed: Record<Names, Float64Array>,
  ) {}

  static async load(part: Part): Promise<Instants> {
    const { moments } = part;
    const read = (column: { column: number; length: number }) => part.numbers(column);
    const [times, bytes, blocks] = await Promise.all([moments.times, moments.bytes, moments.blocks].map(read));
    const trees = await Promise.all(
      moments.forests.map(async (forest) => {
        const [parents, texts, leaves] = await Promise.all([forest.parents, forest.texts, forest.leaves].map(read));
        return { forest, parents, texts, leaves } as Trees;
      }),
    );
    const groups = trees[0]?.leaves.length ?? 0;
    const steps = await stepped(part, moments.steps, groups);
    const arrivals = moments.came && (await stepped(part, moments.came, groups));
    const names = Object.keys(moments.listed) as Names[];
    const columns = await Promise.all(names.map((name) => read(moments.listed[name])));
    const listed = Object.fromEntries(names.map((name, at) => [name, columns[at]])) as Record<Names, Float64Array>;
    return new Instants(part, times as Float64Array, bytes as Float64Array, blocks as Float64Array, steps, arrivals, trees, listed);
  }

  /** The instant that tells of a time: the last one up to it, or the nearest where not all are kept. */
  index(time: number): number {
    const before = Math.max(0, lastUpTo(this.times, time));
    if (this.part.moments.exact) return before;
    const after = Math.min(before + 1, this.times.length - 1);
    const isNearer = Math.abs((this.times[after] ?? 0) - time) < Math.abs((this.times[before] ?? 0) - time);
    return isNearer ? after : before;
  }

  /** The highest instant in a span. */
  highest(from: number, to: number): number {
    let best = this.index(from);
    for (let at = 0; at < this.times.length; at++) {
      const time = this.times[at] ?? 0;
      if (time >= from && time <= to && (this.bytes[at] ?? 0) > (this.bytes[best] ?? 0)) best = at;
    }
    return best;
  }

  /** What groups held at an instant. */
  held(at: number): Sums {
    return sumsAt(this.steps, at);
  }

  /** What groups had allocated up to an instant; none if that is not known. */
  came(at: number): Sums | null {
    return this.arrivals && sumsAt(this.arrivals, at);
  }

  /** What groups are called in a forest. */
  names(way: number): string[] {
    const trees = this.trees[way];
    if (!trees) return [];
    const { parents, texts, leaves } = trees;
    return Array.from(leaves, (leaf) => {
      const steps: string[] = [];
      for (let step = leaf; step > 0; step = parents[step - 1] ?? 0) steps.unshift(this.text(texts[step - 1]));
      return steps.join(", ");
    });
  }

  get ways(): string[] {
    return this.trees.map(({ forest }) => forest.name);
  }

  /** Adds up a forest; `before` is what it is compared with. */
  tree(way: number, now: Sums, before: Sums | null, top: Top = "outermost"): Node {
    const root = node("all", null);
    const trees = this.trees[way];
    if (!trees) return root;
    const { leaves } = trees;
    const end = top === "outermost" ? this.outward(trees, root) : this.inward(trees, root);
    for (let group = 0; group < leaves.length; group++) {
      const [bytes, was] = [now.bytes[group] ?? 0, before?.bytes[group] ?? 0];
      const blocks = now.blocks[group] ?? 0;
      if (bytes === 0 && was === 0 && blocks === 0) continue;
      for (let at: Node | null = end(group); at; at = at.parent) {
        // The first that comes is the one that its parent learns of.
        if (at.size === 0 && Math.max(bytes, was) > 0) at.parent?.children.push(at);
        at.bytes += bytes;
        at.before += was;
        at.blocks += blocks;
        at.size += Math.max(bytes, was);
      }
    }
    place(root);
    return root;
  }

  /** Where the path of a group ends if it begins with its outermost step. */
  private outward({ parents, texts, leaves }: Trees, root: Node): (group: number) => Node {
    const nodes: Node[] = [];
    for (let at = 0; at < parents.length; at++) nodes.push(node(this.text(texts[at]), nodes[(parents[at] ?? 0) - 1] ?? root));
    return (group) => nodes[(leaves[group] ?? 0) - 1] ?? root;
  }

  /** Where it ends if it begins with its innermost; folded frames of an allocator do not hide who asked it. */
  private inward({ parents, texts, leaves }: Trees, root: Node): (group: number) => Node {
    const below = new Map<Node, Map<string, Node>>();
    return (group) => {
      let at = root;
      for (let step = leaves[group] ?? 0; step > 0; step = parents[step - 1] ?? 0) {
        const text = this.text(texts[step - 1]);
        if (at === root && isFolded(text) && (parents[step - 1] ?? 0) > 0) continue;
        const known = below.get(at) ?? new Map<string, Node>();
        below.set(at, known);
        const next = known.get(text) ?? node(text, at);
        known.set(text, next);
        at = next;
      }
      return at;
    };
  }

  /** Whether any path of a forest has more than one step. */
  isDeep(way: number): boolean {
    return this.trees[way]?.parents.some((parent) => parent > 0) ?? false;
  }

  private text(at: number | undefined): string {
    return this.part.strings[at ?? -1] ?? "?";
  }

  /** What leads to a group, innermost first. */
  frames(group: number): string[] {
    const every = this.ways.indexOf("stack with every frame");
    const trees = this.trees[Math.max(0, every)];
    if (!trees) return [];
    const frames: string[] = [];
    for (let node = trees.leaves[group] ?? 0; node > 0; node = trees.parents[node - 1] ?? 0) {
      frames.push(this.part.strings[trees.texts[node - 1] ?? -1] ?? "?");
    }
    return frames;
  }

  /** Blocks live at an instant, largest first; with `before`, those that were not live there. */
  live(at: number, before: number | null): number[] {
    const { first, after, bytes, times, high, low } = this.listed;
    const rows: number[] = [];
    for (let row = 0; row < first.length; row++) {
      const isLive = (index: number) => (first[row] ?? 0) <= index && index < (after[row] ?? 0);
      if (isLive(at) && (before === null || !isLive(before))) rows.push(row);
    }
    const by = (column: Float64Array) => (a: number, b: number) => (column[a] ?? 0) - (column[b] ?? 0);
    const ranks = [times, high, low].map(by);
    rows.sort((a, b) => {
      const larger = (bytes[b] ?? 0) - (bytes[a] ?? 0);
      return ranks.reduce((order, rank) => order || rank(a, b), larger) || a - b;
    });
    const { limit } = this.part.moments;
    return limit === null ? rows : rows.slice(0, limit);
  }

  /** A listed block. */
  block(row: number): { bytes: number; address: string; time: number; thread: string; stream: string; site: string; group: number } {
    const read = (name: Names) => this.listed[name][row] ?? 0;
    const text = (name: Names) => this.part.strings[read(name)] ?? "?";
    const high = read("high");
    const low = read("low").toString(16);
    return {
      bytes: read("bytes"),
      address: high > 0 ? `0x${high.toString(16)}${low.padStart(8, "0")}` : `0x${low}`,
      time: read("times"),
      thread: text("threads"),
      stream: text("streams"),
      site: text("sites"),
      group: read("groups"),
    };
  }
}
