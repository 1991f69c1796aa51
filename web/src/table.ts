// Tables that can be sorted and searched. Rows are created on demand.

import type { Cell, Detail, Document, Table } from "./data";
import { make, section } from "./dom";
import { cell, count } from "./format";
import { stackList } from "./stack";

const PAGE = 15;
/** Tables with fewer rows have no search box. */
const SEARCHABLE_ROWS = 12;
const NUMERIC = ["bytes", "change", "count", "share", "duration", "time", "number"];

/** A table that can be updated. */
export interface TableSection {
  element: HTMLElement;
  update(data: Document, table: Table): void;
}

export function tableSection(data: Document, table: Table): TableSection {
  const view = new TableView(data, table);
  const note = make("p", { class: "note", hidden: table.note === "" }, table.note);
  let shown = JSON.stringify(table);
  const update = (data: Document, table: Table) => {
    // An unchanged table is not touched, because the reader may be using it.
    const next = JSON.stringify(table);
    if (next === shown) return;
    shown = next;
    note.textContent = table.note;
    note.hidden = table.note === "";
    view.refresh(data, table);
  };
  return { element: section(table.id, table.title, "", note, view.element), update };
}

export function tableView(data: Document, table: Table): HTMLElement {
  return new TableView(data, table).element;
}

export class TableView {
  readonly element: HTMLElement;
  private body = make("tbody");
  private head = make("tr");
  private heads: HTMLTableCellElement[] = [];
  private foot = make("p", { class: "foot", "aria-live": "polite" });
  private order: number[];
  private shown = PAGE;
  private sorted: { column: number; down: boolean } | null = null;
  private search = "";
  private box = make("input", { type: "search", placeholder: "Search" });

  constructor(
    private data: Document,
    private table: Table,
  ) {
    this.order = table.rows.map((_, at) => at);
    const caption = make("caption", { class: "hidden" }, table.title);
    const scroll = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Table: ${table.title}` });
    scroll.append(make("table", {}, caption, make("thead", {}, this.head), this.body));
    this.element = make("div", { class: "table" }, this.filter(), scroll, this.foot);
    this.fillHead();
    this.update();
  }

  private fillHead(): void {
    this.heads = this.table.columns.map(({ name, kind }, column) => {
      const button = make("button", { type: "button", click: () => this.sort(column) }, name);
      return make("th", { scope: "col", class: NUMERIC.includes(kind) ? "figure" : "word" }, button);
    });
    this.head.replaceChildren(...this.heads);
  }

  /** Shows other rows with the same order and search. */
  replace(table: Table): void {
    const names = (columns: Table["columns"]) => columns.map(({ name }) => name).join();
    const hasOtherColumns = names(table.columns) !== names(this.table.columns);
    this.table = table;
    this.shown = PAGE;
    if (hasOtherColumns) {
      this.sorted = null;
      this.fillHead();
    }
    this.box.hidden = table.rows.length < SEARCHABLE_ROWS && this.search === "";
    this.update();
  }

  /** Shows newer rows, with as many visible as before. */
  refresh(data: Document, table: Table): void {
    const { shown } = this;
    this.data = data;
    this.replace(table);
    this.shown = shown;
    this.update();
  }

  private filter(): HTMLElement {
    this.box.hidden = this.table.rows.length < SEARCHABLE_ROWS;
    const input = this.box;
    input.setAttribute("aria-label", `Search ${this.table.title}`);
    input.addEventListener("input", () => {
      this.search = input.value.toLowerCase();
      this.shown = PAGE;
      this.update();
    });
    return input;
  }

  private sort(column: number): void {
    const isNumeric = NUMERIC.includes(this.table.columns[column]?.kind ?? "text");
    // Numbers start with the largest, texts with the first.
    const down = this.sorted?.column === column ? !this.sorted.down : isNumeric;
    this.sorted = { column, down };
    this.heads.forEach((head, at) => {
      if (at === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.update();
  }

  private matches(row: Cell[]): boolean {
    if (this.search === "") return true;
    const texts = row.map((value, at) => cell(value, this.table.columns[at]?.kind ?? "text"));
    return texts.join("\n").toLowerCase().includes(this.search);
  }

  private update(): void {
    const { rows } = this.table;
    this.order = rows.map((_, at) => at).filter((at) => this.matches(rows[at] ?? []));
    if (this.sorted) {
      const { column, down } = this.sorted;
      this.order.sort((a, b) => compare(rows[a]?.[column] ?? null, rows[b]?.[column] ?? null, down) || a - b);
    }
    this.body.replaceChildren();
    for (const at of this.order.slice(0, this.shown)) this.body.append(this.row(at));
    this.showCounts();
  }

  private row(at: number): HTMLElement {
    const values = this.table.rows[at] ?? [];
    const { details: all } = this.table;
    const details = typeof all === "function" ? all(at) : (all[at] ?? []);
    const row = make("tr");
    values.forEach((value, column) => {
      const kind = this.table.columns[column]?.kind ?? "text";
      const cellElement = make("td", { class: `${kind} ${NUMERIC.includes(kind) ? "figure" : "word"}` });
      const text = cell(value, kind);
      // The first text of a row with details expands it.
      const opener = details.length > 0 && column === this.opener();
      if (opener) {
        const button = make("button", { type: "button", class: "open", "aria-expanded": "false" }, clamped(text));
        button.addEventListener("click", () => this.toggle(row, button, details));
        cellElement.append(button);
      } else if (kind === "code") cellElement.append(clamped(text));
      else cellElement.append(kind === "text" && text.length > 24 ? make("span", { class: "long" }, text) : text);
      if (kind === "share" && typeof value === "number") {
        const bar = make("span", { class: "bar", "aria-hidden": "true" });
        bar.style.width = `${Math.max(0, Math.min(1, value)) * 100}%`;
        cellElement.append(bar);
      }
      if (kind === "bytes" && typeof value === "number") cellElement.title = `${count(value)} bytes`;
      row.append(cellElement);
    });
    return row;
  }

  /** Returns the column that expands a row: the first if it is code, else the last code column. */
  private opener(): number {
    const kinds = this.table.columns.map(({ kind }) => kind);
    return Math.max(0, kinds[0] === "code" ? 0 : kinds.lastIndexOf("code"));
  }

  private toggle(row: HTMLElement, button: HTMLElement, details: Detail[]): void {
    const isOpen = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) {
      row.nextElementSibling?.remove();
      return;
    }
    const cellElement = make("td", { colspan: this.table.columns.length });
    for (const { text, stack } of details) cellElement.append(make("h3", {}, text), stackList(this.data, stack));
    row.after(make("tr", { class: "detail" }, cellElement));
  }

  private showCounts(): void {
    const [found, all] = [this.order.length, this.table.rows.length];
    const shown = Math.min(found, this.shown);
    const parts: string[] = [];
    if (all === 0) parts.push("No rows.");
    if (found < all) parts.push(`${count(found)} of ${count(all)} rows match.`);
    if (shown < found) parts.push(`Showing ${count(shown)} of ${count(found)}.`);
    if (this.table.omitted > 0) parts.push(`${count(this.table.omitted)} more rows are not in this report.`);
    this.foot.replaceChildren(parts.join(" "));
    if (shown < found) {
      const more = () => {
        this.shown = this.shown === PAGE ? 200 : this.shown * 4;
        this.update();
      };
      this.foot.append(" ", make("button", { type: "button", click: more }, "Show more"));
    }
  }
}

/** Shows a long name on two lines, with the full name as its tooltip. */
function clamped(text: string): HTMLElement {
  const short = text.length <= 24;
  return make("span", { class: short ? "short" : "clamp", title: short ? null : text }, text);
}

/** Compares cells; missing values come last in either direction. */
function compare(a: Cell, b: Cell, down: boolean): number {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  const less = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  return down ? -less : less;
}
