// Finds calls by their text, and what they hold.

import type { Node } from "./instants";

export interface Matches {
  nodes: Set<Node>;
  /** Those that no other match is above of, the largest first. */
  outer: Node[];
  /** What they hold, and held at the instant that is compared; a path counts once, however many of its calls match. */
  bytes: number;
  before: number;
}

/** All below `root` whose text has `wanted` in it, in whatever case; nothing is searched for without a text. */
export function matches(root: Node, wanted: string): Matches | null {
  const text = wanted.trim().toLowerCase();
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
