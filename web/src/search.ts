// Finds calls by text and sums the memory they hold.

import type { Node } from "./snapshots";

export interface Matches {
  nodes: Set<Node>;
  /** Matches without another match above them, largest first. */
  outer: Node[];
  /** Bytes held by the matches, now and in the compared snapshot. A path counts once, however many of its calls match. */
  bytes: number;
  before: number;
}

/** Returns all nodes below `root` that contain `query`, ignoring case; null for an empty search. */
export function matches(root: Node, query: string): Matches | null {
  const text = query.trim().toLowerCase();
  if (text === "") return null;
  const found: Matches = { nodes: new Set(), outer: [], bytes: 0, before: 0 };
  const pending = root.children.map((node) => ({ node, isBelow: false }));
  for (let next = pending.pop(); next; next = pending.pop()) {
    const { node } = next;
    const isMatch = node.text.toLowerCase().includes(text);
    if (isMatch) {
      found.nodes.add(node);
      if (!next.isBelow) {
        found.outer.push(node);
        found.bytes += node.bytes;
        found.before += node.before;
      }
    }
    for (const child of node.children) pending.push({ node: child, isBelow: next.isBelow || isMatch });
  }
  found.outer.sort((a, b) => b.size - a.size || a.from - b.from);
  return found;
}
