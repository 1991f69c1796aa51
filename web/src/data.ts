// What a page gets to show. `crates/view/src/html/data.rs` says the same in its language; change both.
//
// Times are nanoseconds since the origin. Texts that come more than once are indices into `strings`.
// All texts come from traces and are untrusted: they become text nodes, never markup.

export interface Document {
  schema: "floodmark.report/1";
  program: string;
  source: string;
  /** The command that ran, if one did. */
  command: string | null;
  /** The instant all times count from; empty if there is none. */
  origin: string;
  /** Time from the origin to the end. */
  span: number;
  summary: string[];
  findings: { level: "bad" | "doubtful" | "note"; text: string }[];
  charts: Chart[];
  marks: Mark[];
  tree: Tree | null;
  tables: Table[];
  dots: Dot[];
  output: Output | null;
  /** Frames of stacks, innermost first, as indices into `strings`. */
  stacks: number[][];
  strings: string[];
}

/** A list of whole numbers that is stored apart; see `columns.ts`. */
export interface Column {
  column: number;
  length: number;
}

export interface Chart {
  title: string;
  note: string;
  series: { name: string; times: Column; values: Column }[];
  /** The highest point, as results state it: it may lie above all points. */
  peak: { time: number; bytes: number } | null;
  /** Whether stacks are dots in it. */
  dots: boolean;
}

export interface Mark {
  time: number;
  name: string;
}

export interface Tree {
  title: string;
  note: string;
  total: number;
  /** Index of the parent plus one; 0 for none. Parents come before children. */
  parents: Column;
  texts: Column;
  bytes: Column;
  blocks: Column;
}

export type CellKind = "text" | "code" | "bytes" | "count" | "share" | "duration" | "time" | "number";
export type Cell = string | number | null;

export interface Table {
  id: string;
  title: string;
  note: string;
  columns: { name: string; kind: CellKind }[];
  rows: Cell[][];
  /** Stacks of each row; empty if no row has any. */
  details: { text: string; stack: number }[][];
  omitted: number;
}

export interface Dot {
  time: number;
  who: string;
  reason: string;
  stack: number;
}

export interface Output {
  note: string;
  times: Column;
  /** 1 for standard output, 2 for standard error, 3 for a terminal. */
  streams: Column;
  lines: string[];
  /** Lines are left out before this one. */
  gap: number | null;
}
