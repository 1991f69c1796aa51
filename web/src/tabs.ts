// Tabs: one of several panels is shown. In print all of them are, each under its title.

import { make } from "./dom";

export interface Tab {
  id: string;
  title: string;
  /** What the panel shows; its headings are hidden if it is a single section. */
  content: HTMLElement[];
}

export class Tabs {
  readonly list: HTMLElement;
  readonly panels = make("div", { class: "panels" });
  private tabs = new Map<string, { button: HTMLButtonElement; panel: HTMLElement }>();
  private order: string[] = [];
  private selected = "";
  private isChosen = false;

  constructor(
    label: string,
    /** Called when the reader selects a tab. */
    private onSelect: () => void,
  ) {
    this.list = make("div", { class: "tabs", role: "tablist", "aria-label": label });
    this.list.addEventListener("keydown", (event) => this.key(event));
  }

  /** The selected tab. */
  get current(): string {
    return this.selected;
  }

  /** The tab that is selected unless the reader selects another one. */
  get first(): string {
    return this.order[0] ?? "";
  }

  /** The tab that the reader has selected; empty for the first. */
  get chosen(): string {
    return this.isChosen && this.selected !== this.first ? this.selected : "";
  }

  /** Shows these tabs; those that exist keep their panels. */
  set(tabs: Tab[]): void {
    const ids = tabs.map(({ id }) => id);
    for (const [id, { button, panel }] of this.tabs) {
      if (ids.includes(id)) continue;
      button.remove();
      panel.remove();
      this.tabs.delete(id);
    }
    tabs.forEach(({ id, title, content }, at) => {
      const { button, panel } = this.tabs.get(id) ?? this.add(id, title);
      button.textContent = title;
      place(this.list, button, at);
      place(this.panels, panel, at);
      panel.classList.toggle("single", content.length === 1);
      for (const old of [...panel.children]) if (!content.includes(old as HTMLElement)) old.remove();
      content.forEach((element, index) => place(panel, element, index));
    });
    this.order = ids;
    // One tab needs no choice.
    this.list.hidden = ids.length < 2;
    this.select(ids.includes(this.selected) ? this.selected : this.first);
  }

  /** Selects the tab of an address; empty or unknown for the first. */
  restore(id: string): void {
    this.isChosen = this.tabs.has(id);
    this.select(this.isChosen ? id : this.first);
  }

  /** Selects a tab that the reader asks for; an unknown one is ignored. */
  show(id: string): void {
    this.isChosen ||= this.tabs.has(id);
    this.select(id);
  }

  private select(id: string): void {
    if (!this.tabs.has(id)) return;
    this.selected = id;
    for (const [name, { button, panel }] of this.tabs) {
      const isSelected = name === id;
      button.setAttribute("aria-selected", String(isSelected));
      button.tabIndex = isSelected ? 0 : -1;
      panel.classList.toggle("inactive", !isSelected);
    }
  }

  /** Selects the tab that contains an element. */
  reveal(element: Element): void {
    for (const [id, { panel }] of this.tabs) if (panel.contains(element) && panel !== element) this.show(id);
  }

  private add(id: string, title: string): { button: HTMLButtonElement; panel: HTMLElement } {
    const button = make("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}` }, title);
    const panel = make("div", { class: "panel", role: "tabpanel", id: `panel-${id}`, "aria-labelledby": `tab-${id}` });
    button.addEventListener("click", () => this.choose(id));
    const tab = { button, panel };
    this.tabs.set(id, tab);
    return tab;
  }

  private choose(id: string): void {
    this.isChosen = true;
    this.select(id);
    this.onSelect();
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const at = Math.max(0, Math.min(this.order.length - 1, this.order.indexOf(this.selected) + step));
    this.choose(this.order[at] ?? "");
    this.tabs.get(this.selected)?.button.focus();
  }
}

/** Moves an element to a position among its siblings, unless it is there: moving would drop focus and scrolling. */
function place(parent: HTMLElement, element: HTMLElement, at: number): void {
  const there = parent.children[at];
  if (there !== element) parent.insertBefore(element, there ?? null);
}
