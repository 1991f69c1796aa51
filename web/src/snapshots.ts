// Snapshots of the live blocks: decodes their columns and sums what groups held.

import type { BlockColumns, Column, Forest, SnapshotColumns } from "./data";
import type { SnapshotData } from "./host";
import { lastUpTo } from "./cursor";

/** Bytes and blocks of each group. */
export interface Totals {
  bytes: Float64Array;
  blocks: Float64Array;
}

/** A call, site or name with the memory held by it and below it. */
export interface Node {
  text: string;
  /** Bytes held, in this snapshot and in the compared one. */
  bytes: number;
  before: number;
  blocks: number;
  /** Width: the bytes held, or the larger of both snapshots. */
  size: number;
  parent: Node | null;
  children: Node[];
  depth: number;
  /** Offset from the left edge, in the unit of `size`. */
  from: number;
}

/** The top of a tree: the outermost callers, or the allocating functions with their callers below. */
export type Top = "outermost" | "innermost";

interface Tree {
  forest: Forest;
  parents: Float64Array;
  texts: Float64Array;
  leaves: Float64Array;
}

/** Totals that change at snapshots, sorted by group and then by snapshot. */
interface Steps {
  snapshots: Float64Array;
  bytes: Float64Array;
  blocks: Float64Array;
  /** Index of the first step of each group, followed by the number of steps. */
  starts: Float64Array;
}

async function loadSteps(data: SnapshotData, columns: SnapshotColumns["steps"], groupCount: number): Promise<Steps> {
  const order = [columns.groups, columns.snapshots, columns.bytes, columns.blocks];
  const [groups, snapshots, bytes, blocks] = (await Promise.all(order.map((column) => data.numbers(column)))) as [
    Float64Array,
    Float64Array,
    Float64Array,
    Float64Array,
  ];
  const starts = new Float64Array(groupCount + 1);
  for (const group of groups) starts[group + 1] = (starts[group + 1] ?? 0) + 1;
  for (let group = 1; group < starts.length; group++) starts[group] = (starts[group] ?? 0) + (starts[group - 1] ?? 0);
  return { snapshots, bytes, blocks, starts };
}

/** Returns the totals of all groups at a snapshot. */
function totalsAt({ snapshots, bytes, blocks, starts }: Steps, index: number): Totals {
  const groupCount = starts.length - 1;
  const totals = { bytes: new Float64Array(groupCount), blocks: new Float64Array(groupCount) };
  for (let group = 0; group < groupCount; group++) {
    const [start, end] = [starts[group] ?? 0, starts[group + 1] ?? 0];
    const step = lastUpTo(snapshots.subarray(start, end), index);
    if (step < 0) continue;
    totals.bytes[group] = bytes[start + step] ?? 0;
    totals.blocks[group] = blocks[start + step] ?? 0;
  }
  return totals;
}

type BlockColumn = keyof BlockColumns;

function newNode(text: string, parent: Node | null): Node {
  return { text, bytes: 0, before: 0, blocks: 0, size: 0, parent, children: [], depth: parent ? parent.depth + 1 : 0, from: 0 };
}

/** Tells whether a text stands for several folded frames. */
export function isFolded(text: string): boolean {
  return text.startsWith("… ");
}

/** Places the children of all nodes side by side, widest first. */
function layOut(node: Node): void {
  node.children.sort((a, b) => b.size - a.size);
  let from = node.from;
  for (const child of node.children) {
    child.from = from;
    from += child.size;
    layOut(child);
  }
}

export class Snapshots {
  private constructor(
    readonly data: SnapshotData,
    readonly times: Float64Array,
    readonly bytes: Float64Array,
    readonly blocks: Float64Array,
    private held: Steps,
    private cumulative: Steps | null,
    private trees: Tree[],
    private blockColumns: Record<BlockColumn, Float64Array>,
  ) {}

  static async load(data: SnapshotData): Promise<Snapshots> {
    const { columns } = data;
    const read = (column: Column) => data.numbers(column);
    const [times, bytes, blocks] = await Promise.all([columns.times, columns.bytes, columns.blocks].map(read));
    const trees = await Promise.all(
      columns.forests.map(async (forest) => {
        const [parents, texts, leaves] = await Promise.all([forest.parents, forest.texts, forest.leaves].map(read));
        return { forest, parents, texts, leaves } as Tree;
      }),
    );
    const groupCount = trees[0]?.leaves.length ?? 0;
    const held = await loadSteps(data, columns.steps, groupCount);
    const cumulative = columns.cumulative && (await loadSteps(data, columns.cumulative, groupCount));
    const names = Object.keys(columns.listed) as BlockColumn[];
    const lists = await Promise.all(names.map((name) => read(columns.listed[name])));
    const blockColumns = Object.fromEntries(names.map((name, at) => [name, lists[at]])) as Record<BlockColumn, Float64Array>;
    return new Snapshots(data, times as Float64Array, bytes as Float64Array, blocks as Float64Array, held, cumulative, trees, blockColumns);
  }

  /** Returns the snapshot for a time: the last one up to it, or the nearest if not every change has one. */
  index(time: number): number {
    const before = Math.max(0, lastUpTo(this.times, time));
    if (this.data.columns.exact) return before;
    const after = Math.min(before + 1, this.times.length - 1);
    const isNearer = Math.abs((this.times[after] ?? 0) - time) < Math.abs((this.times[before] ?? 0) - time);
    return isNearer ? after : before;
  }

  /** Returns the snapshot with most bytes between two times. */
  highest(from: number, to: number): number {
    let best = this.index(from);
    for (let at = 0; at < this.times.length; at++) {
      const time = this.times[at] ?? 0;
      if (time >= from && time <= to && (this.bytes[at] ?? 0) > (this.bytes[best] ?? 0)) best = at;
    }
    return best;
  }

  /** Returns what groups held at a snapshot. */
  heldAt(index: number): Totals {
    return totalsAt(this.held, index);
  }

  /** Returns the cumulative allocations of groups up to a snapshot; null if unknown. */
  allocatedUpTo(index: number): Totals | null {
    return this.cumulative && totalsAt(this.cumulative, index);
  }

  /** Returns the names of all groups in a grouping. */
  groupNames(grouping: number): string[] {
    const tree = this.trees[grouping];
    if (!tree) return [];
    const { parents, texts, leaves } = tree;
    return Array.from(leaves, (leaf) => {
      const path: string[] = [];
      for (let step = leaf; step > 0; step = parents[step - 1] ?? 0) path.unshift(this.text(texts[step - 1]));
      return path.join(", ");
    });
  }

  get groupings(): string[] {
    return this.trees.map(({ forest }) => forest.name);
  }

  /** Sums totals up a grouping; `before` are the totals to compare with. */
  tree(grouping: number, now: Totals, before: Totals | null, top: Top = "outermost"): Node {
    const root = newNode("all", null);
    const tree = this.trees[grouping];
    if (!tree) return root;
    const { leaves } = tree;
    const nodeOf = top === "outermost" ? this.fromOutermost(tree, root) : this.fromInnermost(tree, root);
    for (let group = 0; group < leaves.length; group++) {
      const [bytes, was] = [now.bytes[group] ?? 0, before?.bytes[group] ?? 0];
      const blocks = now.blocks[group] ?? 0;
      if (bytes === 0 && was === 0 && blocks === 0) continue;
      for (let at: Node | null = nodeOf(group); at; at = at.parent) {
        // The first bytes of a node add it to its parent, so empty nodes are never shown.
        if (at.size === 0 && Math.max(bytes, was) > 0) at.parent?.children.push(at);
        at.bytes += bytes;
        at.before += was;
        at.blocks += blocks;
        at.size += Math.max(bytes, was);
      }
    }
    layOut(root);
    return root;
  }

  /** Returns the node of a group in a tree that starts with the outermost callers. */
  private fromOutermost({ parents, texts, leaves }: Tree, root: Node): (group: number) => Node {
    const nodes: Node[] = [];
    for (let at = 0; at < parents.length; at++) nodes.push(newNode(this.text(texts[at]), nodes[(parents[at] ?? 0) - 1] ?? root));
    return (group) => nodes[(leaves[group] ?? 0) - 1] ?? root;
  }

  /** Returns the node of a group in a tree that starts with the innermost calls. Folded allocator frames are skipped. */
  private fromInnermost({ parents, texts, leaves }: Tree, root: Node): (group: number) => Node {
    const children = new Map<Node, Map<string, Node>>();
    return (group) => {
      let at = root;
      for (let step = leaves[group] ?? 0; step > 0; step = parents[step - 1] ?? 0) {
        const text = this.text(texts[step - 1]);
        if (at === root && isFolded(text) && (parents[step - 1] ?? 0) > 0) continue;
        const known = children.get(at) ?? new Map<string, Node>();
        children.set(at, known);
        const next = known.get(text) ?? newNode(text, at);
        known.set(text, next);
        at = next;
      }
      return at;
    };
  }

  /** Tells whether a grouping has more than one level. */
  isDeep(grouping: number): boolean {
    return this.trees[grouping]?.parents.some((parent) => parent > 0) ?? false;
  }

  private text(at: number | undefined): string {
    return this.data.strings[at ?? -1] ?? "?";
  }

  /** Returns the frames of a group, innermost first. */
  frames(group: number): string[] {
    const every = this.groupings.indexOf("stack with every frame");
    const tree = this.trees[Math.max(0, every)];
    if (!tree) return [];
    const frames: string[] = [];
    for (let node = tree.leaves[group] ?? 0; node > 0; node = tree.parents[node - 1] ?? 0) {
      frames.push(this.data.strings[tree.texts[node - 1] ?? -1] ?? "?");
    }
    return frames;
  }

  /** Returns the rows of blocks live at a snapshot, largest first; with `before`, without those live there. */
  liveBlocks(index: number, before: number | null): number[] {
    const { first, after, bytes, times, high, low } = this.blockColumns;
    const rows: number[] = [];
    for (let row = 0; row < first.length; row++) {
      const isLive = (snapshot: number) => (first[row] ?? 0) <= snapshot && snapshot < (after[row] ?? 0);
      if (isLive(index) && (before === null || !isLive(before))) rows.push(row);
    }
    const by = (column: Float64Array) => (a: number, b: number) => (column[a] ?? 0) - (column[b] ?? 0);
    const ranks = [times, high, low].map(by);
    rows.sort((a, b) => {
      const larger = (bytes[b] ?? 0) - (bytes[a] ?? 0);
      return ranks.reduce((order, rank) => order || rank(a, b), larger) || a - b;
    });
    const { limit } = this.data.columns;
    return limit === null ? rows : rows.slice(0, limit);
  }

  /** Returns the rows of blocks live at any snapshot of a range, in order of allocation. */
  liveBetween(from: number, to: number): number[] {
    const rows: number[] = [];
    for (let row = 0; row < this.blockColumns.first.length; row++) {
      const { first, after } = this.lifetime(row);
      if (first <= to && after > from) rows.push(row);
    }
    return rows;
  }

  /** Returns the first snapshot at which a block is live, and the one after the last. */
  lifetime(row: number): { first: number; after: number } {
    return { first: this.blockColumns.first[row] ?? 0, after: this.blockColumns.after[row] ?? 0 };
  }

  /** Returns the block in a row. */
  block(row: number): { bytes: number; address: string; time: number; thread: string; stream: string; site: string; group: number } {
    const read = (name: BlockColumn) => this.blockColumns[name][row] ?? 0;
    const text = (name: BlockColumn) => this.data.strings[read(name)] ?? "?";
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
