// The document that a page shows. It mirrors `crates/view/src/html/data.rs`, which also fixes the keys; change both.
//
// Times are nanoseconds since the origin. Repeated texts are indices into `strings`. All texts come from traces and
// are untrusted: they become text nodes, never markup.

export interface Document {
  schema: "floodmark.report/5";
  program: string;
  source: string;
  /** Filter options of the command line; empty if there are none. */
  filters: string;
  /** Command line of the recorded program. */
  command: string | null;
  /** The instant that times are relative to, as text; empty if unknown. */
  origin: string;
  /** Nanoseconds from the origin to the end. */
  span: number;
  /** What happened, in sentences. */
  story: Sentence[];
  findings: { level: "bad" | "doubtful" | "note"; text: string }[];
  charts: Chart[];
  /** The part of the time in which something happens, if the rest is long and quiet. */
  active: { from: number; to: number } | null;
  marks: Mark[];
  snapshots: SnapshotColumns | null;
  tables: Table[];
  dots: Dot[];
  ranges: RangeColumns | null;
  ranks: RankMap | null;
  output: Output | null;
  /** Frames of each stack, innermost first, as indices into `strings`. */
  stacks: number[][];
  strings: string[];
}

/** Refers to a list of integers that is stored outside the document; see `columns.ts`. */
export interface Column {
  column: number;
  length: number;
}

/** A sentence of the story; its parts are joined without spaces. */
export interface Sentence {
  parts: { text: string; to: Target | null }[];
}

/** The view that shows the evidence for a part of a sentence. */
export interface Target {
  /** Nanoseconds since the origin, or the peak. */
  at: number | "peak" | null;
  /** The visible range; null for the one that the page opens with. */
  span: { from: number; to: number } | null;
  /** The lower tab; empty for the first. */
  tab: string;
  /** Text to search in the flame graph; empty for none. */
  find: string;
}

export interface Chart {
  title: string;
  note: string;
  series: { name: string; times: Column; values: Column }[];
  /** The exact peak, which may be above all drawn points. */
  peak: { time: number; bytes: number } | null;
  /** Lines that add up to the first one: what they are, and the index of the first of them; null if none do. */
  parts: { by: string; from: number } | null;
  /** Levels that bound it, such as the size of a device. */
  ceilings: { name: string; bytes: number }[];
  /** Whether stack samples are drawn as dots. */
  dots: boolean;
}

export interface Mark {
  time: number;
  name: string;
}

/** Snapshots of the live blocks at some instants, in order of time. */
export interface SnapshotColumns {
  note: string;
  /** Whether nothing changed between two snapshots. */
  exact: boolean;
  times: Column;
  bytes: Column;
  blocks: Column;
  /** Index of the snapshot at the peak. */
  peak: number | null;
  forests: Forest[];
  /** Bytes and blocks held by each group from a snapshot on; sorted by group, then by snapshot. */
  steps: { groups: Column; snapshots: Column; bytes: Column; blocks: Column };
  /** Cumulative allocations of each group, in the same form; null if unknown. */
  cumulative: { groups: Column; snapshots: Column; bytes: Column; blocks: Column } | null;
  /** The held bytes divided in several ways. */
  breakdowns: Breakdown[];
  listed: BlockColumns;
  /** Maximum number of blocks listed per snapshot; null for all. */
  limit: number | null;
  maps: AddressMap[];
}

/** One way to group blocks: a tree whose leaves are groups. Parents come before children. */
export interface Forest {
  name: string;
  /** Index of the parent plus one; 0 for roots. */
  parents: Column;
  texts: Column;
  /** Index of the node of each group plus one. */
  leaves: Column;
}

/** The held bytes as layers that add up: by site, process, stream ... */
export interface Breakdown {
  by: string;
  /** Names of the layers, as indices into `strings`; those that held most come first. */
  names: number[];
  /** Index of the layer that sums up all others; null if there is none. */
  others: number | null;
  /** Bytes of each layer from a snapshot on; sorted by layer, then by snapshot. */
  bands: Column;
  snapshots: Column;
  bytes: Column;
}

/** Blocks in order of allocation. */
export interface BlockColumns {
  /** Index of the first snapshot with the block, and of the one after the last. */
  first: Column;
  after: Column;
  groups: Column;
  bytes: Column;
  /** Upper and lower 32 bits of the address. */
  high: Column;
  low: Column;
  times: Column;
  threads: Column;
  streams: Column;
  sites: Column;
}

/** Usage of addresses over time. */
export interface AddressMap {
  title: string;
  /** Start address and length of each address range. */
  bands: [string, number][];
  /** Bytes per cell, and cells per snapshot. */
  cell: number;
  cells: number;
  snapshots: Column;
  /** Used share of each cell from 0 to 255, snapshot by snapshot. */
  taken: Column;
}

/** "change" is used by the page only: bytes with a sign. */
export type CellKind = "text" | "code" | "bytes" | "change" | "count" | "share" | "duration" | "time" | "number";
export type Cell = string | number | null;

export interface Table {
  id: string;
  title: string;
  note: string;
  columns: { name: string; kind: CellKind }[];
  rows: Cell[][];
  /** Stacks of each row; empty if no row has stacks. */
  details: Detail[][] | ((row: number) => Detail[]);
  omitted: number;
  /** Whether the table repeats the snapshot at the peak, for readers without scripts. */
  still: boolean;
}

export interface Detail {
  text: string;
  /** Index of a stack, or its frames with the innermost first. */
  stack: number | string[];
}

/** Scopes and ranges, in order of their beginnings. */
export interface RangeColumns {
  /** States what is left out; empty if nothing is. */
  note: string;
  /** Times at which they begin and end. */
  starts: Column;
  ends: Column;
  /** Rows of the lane; ranges of a row do not overlap. */
  levels: Column;
  /** Names as indices into `strings`. */
  names: Column;
}

/** Memory of ranks over time. */
export interface RankMap {
  /** The highest value, which a cell of 255 stands for. */
  highest: number;
  /** First and last rank of each row. */
  rows: [number, number][];
  /** Starts of the intervals. */
  times: Column;
  /** Highest value of each row, interval by interval; 0 where no rank ran. */
  cells: Column;
}

/** Stacks that were taken at one moment. */
export interface Dot {
  time: number;
  reason: string;
  /** Threads: the one to look at first, those that wait last. */
  threads: DotThread[];
  /** Number of threads that are left out. */
  omitted: number;
}

export interface DotThread {
  who: string;
  /** Index of a stack. */
  stack: number;
  /** Whether the thread waited for something. */
  waits: boolean;
}

export interface Output {
  note: string;
  times: Column;
  /** 1 for stdout, 2 for stderr, 3 for a terminal. */
  streams: Column;
  lines: string[];
  /** Index of the line before which lines are omitted. */
  gap: number | null;
}
