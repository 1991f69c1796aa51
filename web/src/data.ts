// What a page gets to show. `crates/view/src/html/data.rs` says the same in its language; change both.
//
// Times are nanoseconds since the origin. Texts that come more than once are indices into `strings`.
// All texts come from traces and are untrusted: they become text nodes, never markup.

export interface Document {
  schema: "floodmark.report/2";
  program: string;
  source: string;
  /** Options that narrow what is shown; empty if none do. */
  narrowed: string;
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
  moments: Moments | null;
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

/** What was live at some instants. */
export interface Moments {
  note: string;
  /** Whether between two instants nothing changed. */
  exact: boolean;
  /** Time of the first event, from which `--at +…` counts. */
  first: number;
  times: Column;
  bytes: Column;
  blocks: Column;
  /** Index of the peak. */
  peak: number | null;
  forests: Forest[];
  /** What each group held from which instant on: by group, then by instant. */
  steps: { groups: Column; moments: Column; bytes: Column; blocks: Column };
  /** What each group had allocated up to which instant: by group, then by instant; none if that is not known. */
  came: { groups: Column; moments: Column; bytes: Column; blocks: Column } | null;
  listed: Listed;
  /** Most blocks that are listed of an instant; all if null. */
  limit: number | null;
  maps: AddressMap[];
}

/** What leads to groups of blocks: nodes, parents before children. */
export interface Forest {
  name: string;
  /** Index of the parent plus one; 0 for none. */
  parents: Column;
  texts: Column;
  /** The node of each group, plus one. */
  leaves: Column;
}

/** Blocks, in order of age. */
export interface Listed {
  /** First instant at which it was live, and the one after the last. */
  first: Column;
  after: Column;
  groups: Column;
  bytes: Column;
  /** Upper and lower half of the address. */
  high: Column;
  low: Column;
  times: Column;
  threads: Column;
  streams: Column;
  sites: Column;
}

/** Addresses over time. */
export interface AddressMap {
  title: string;
  /** Where stretches of addresses begin, and how long they are. */
  bands: [string, number][];
  /** Bytes of a cell, and cells of an instant. */
  cell: number;
  cells: number;
  moments: Column;
  /** How much of each cell was taken, from 0 to 255, instant by instant. */
  taken: Column;
}

/** "change" is of this side only: bytes with a sign. */
export type CellKind = "text" | "code" | "bytes" | "change" | "count" | "share" | "duration" | "time" | "number";
export type Cell = string | number | null;

export interface Table {
  id: string;
  title: string;
  note: string;
  columns: { name: string; kind: CellKind }[];
  rows: Cell[][];
  /** Stacks of each row; empty if no row has any. */
  details: Detail[][] | ((row: number) => Detail[]);
  omitted: number;
  /** Whether it says what the view of instants says of the peak, and is there for those without scripts. */
  still: boolean;
}

export interface Detail {
  text: string;
  /** Index of a stack, or its frames, innermost first. */
  stack: number | string[];
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
