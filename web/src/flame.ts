// Makes the flame graphs of `floodmark flame` and `floodmark diff` interactive: zoom, search, reset, copy a path.
//
// It is bundled on its own (`crates/view/assets/flame.js`) and put into pages and SVG files, whose boxes it moves.
// Without it they are pictures.

/** A box of the graph; places are shares of the whole width. */
interface Box {
  left: number;
  width: number;
  top: number;
  text: string;
  element: Element;
  /** Moves the box, or hides it for a width of 0. */
  place(left: number, width: number): void;
}

/** Places are rounded to less than this; the narrowest boxes are wider. */
const EPSILON = 2e-4;
const HELP = "Click a call to zoom in, click a call above it to zoom out. Keyboard: arrows move, Enter zooms in, Escape zooms out.";

/** Tells whether a box is above another one. */
const isAbove = (outer: Box, inner: Box) =>
  outer.top < inner.top && outer.left <= inner.left + EPSILON && outer.left + outer.width >= inner.left + inner.width - EPSILON;

class Flame {
  private zoomed: Box | null = null;
  private chosen: Box | null = null;

  constructor(
    private boxes: Box[],
    area: Element,
    /** Shows a sentence to the reader. */
    private tell: (text: string) => void,
  ) {
    area.setAttribute("tabindex", "0");
    area.setAttribute("role", "application");
    area.setAttribute("aria-label", `Flame graph. ${HELP}`);
    for (const box of boxes) {
      box.element.addEventListener("click", () => this.zoom(box));
      box.element.addEventListener("mousemove", () => this.choose(box));
    }
    area.addEventListener("keydown", (event) => this.key(event as KeyboardEvent));
  }

  /** Shows a box at the full width, and those above it; null shows all. */
  zoom(box: Box | null): void {
    this.zoomed = box;
    const [from, width] = box ? [box.left, box.width] : [0, 1];
    for (const one of this.boxes) {
      const isInside = one.left + one.width > from + EPSILON && one.left < from + width - EPSILON;
      if (box && one !== box && isAbove(one, box)) one.place(0, 1);
      else if (!isInside || (box && one.top <= box.top && one !== box)) one.place(0, 0);
      else one.place((one.left - from) / width, one.width / width);
    }
    this.choose(box);
  }

  /** Marks the boxes that contain a text, and tells how much of the whole they are; a path counts once. */
  search(query: string): void {
    const wanted = query.trim().toLowerCase();
    const found = wanted === "" ? [] : this.boxes.filter(({ text }) => text.toLowerCase().includes(wanted));
    for (const { element } of this.boxes) element.classList.toggle("found", found.some((box) => box.element === element));
    const outer = found.filter((box) => !found.some((other) => isAbove(other, box)));
    const share = outer.reduce((sum, { width }) => sum + width, 0);
    const calls = found.length === 1 ? "1 call matches" : `${found.length} calls match`;
    this.tell(wanted === "" ? "" : found.length === 0 ? "No call matches." : `${calls}: ${(share * 100).toFixed(1)} % of all.`);
  }

  /** Copies the chosen call with its callers, the outermost first. */
  async copy(): Promise<void> {
    const box = this.chosen ?? this.zoomed;
    if (!box) return this.tell("Point at a call first.");
    const path = [...this.boxes.filter((one) => isAbove(one, box)).sort((a, b) => a.top - b.top), box];
    try {
      await navigator.clipboard.writeText(path.map(({ text }) => text).join("\n"));
      this.tell(`Copied ${path.length} ${path.length === 1 ? "call" : "calls"}.`);
    } catch {
      this.tell("The browser did not allow copying.");
    }
  }

  private choose(box: Box | null): void {
    this.chosen?.element.classList.remove("chosen");
    this.chosen = box;
    box?.element.classList.add("chosen");
  }

  private key(event: KeyboardEvent): void {
    const first = this.boxes[0];
    const at = this.chosen ?? this.zoomed ?? first;
    if (!at || !first || event.target instanceof HTMLInputElement) return;
    const below = this.boxes.filter((box) => isAbove(at, box));
    const top = Math.min(...below.map((box) => box.top));
    const above = this.boxes.filter((box) => isAbove(box, at)).sort((a, b) => b.top - a.top)[0];
    const row = this.boxes.filter((box) => box.top === at.top).sort((a, b) => a.left - b.left);
    const moves: Record<string, Box | undefined> = {
      ArrowDown: below.filter((box) => box.top === top).sort((a, b) => b.width - a.width)[0],
      ArrowUp: above,
      ArrowLeft: row[row.indexOf(at) - 1],
      ArrowRight: row[row.indexOf(at) + 1],
    };
    if (event.key in moves) this.choose(this.chosen ? (moves[event.key] ?? at) : at);
    else if (event.key === "Enter") this.zoom(at);
    else if (event.key === "Escape") this.zoom(this.boxes.filter((box) => this.zoomed && isAbove(box, this.zoomed)).sort((a, b) => b.top - a.top)[0] ?? null);
    else return;
    event.preventDefault();
  }
}

/** The first line of a hint is the full text of its box. */
const firstLine = (hint: string) => hint.split("\n")[0] ?? "";

/** Sets up the graphs of a page. */
function inPage(area: HTMLElement): void {
  const boxes = [...area.children].map((child): Box => {
    const element = child as HTMLElement;
    const share = (text: string) => Number.parseFloat(text) / 100;
    const place = (left: number, width: number) => {
      element.style.display = width === 0 ? "none" : "";
      element.style.left = `${left * 100}%`;
      element.style.width = `${width * 100}%`;
    };
    const { style, title } = element;
    return { left: share(style.left), width: share(style.width), top: Number.parseFloat(style.top), text: firstLine(title), element, place };
  });
  const make = <Name extends keyof HTMLElementTagNameMap>(name: Name, text = "") => Object.assign(document.createElement(name), { textContent: text });
  const status = make("span");
  status.setAttribute("role", "status");
  const flame = new Flame(boxes, area, (text) => (status.textContent = text));
  const search = Object.assign(make("input"), { type: "search", placeholder: "Search calls", ariaLabel: "Search calls" });
  search.addEventListener("input", () => flame.search(search.value));
  const button = (label: string, act: () => void) => {
    const button = Object.assign(make("button", label), { type: "button" });
    button.addEventListener("click", act);
    return button;
  };
  const reset = () => {
    search.value = "";
    flame.search("");
    flame.zoom(null);
  };
  const tools = make("p");
  tools.className = "tools";
  tools.append(search, " ", button("Reset", reset), " ", button("Copy path", () => void flame.copy()), " ", status);
  area.before(tools);
}

/** Sets up a picture that is opened on its own. */
function inPicture(svg: SVGSVGElement): void {
  const full = svg.viewBox.baseVal.width;
  const groups = [...svg.querySelectorAll("g")].filter((group) => group.querySelector("rect"));
  const number = (element: Element, name: string) => Number(element.getAttribute(name));
  const margin = Math.min(...groups.map((group) => number(group.querySelector("rect") as Element, "x")));
  const room = full - 2 * margin;
  const boxes = groups.map((group): Box => {
    const rect = group.querySelector("rect") as SVGRectElement;
    const label = group.querySelector("text");
    const text = firstLine(group.querySelector("title")?.textContent ?? "");
    const [left, width] = [(number(rect, "x") - margin) / room, (number(rect, "width") + 1) / room];
    const place = (left: number, width: number) => {
      group.style.display = width === 0 ? "none" : "";
      rect.setAttribute("x", String(margin + left * room));
      rect.setAttribute("width", String(Math.max(0.5, width * room - 1)));
      if (!label) return;
      const letters = Math.floor((width * room - 8) / 6.2);
      label.setAttribute("x", String(margin + left * room + 3));
      label.removeAttribute("textLength");
      label.textContent = letters < 3 ? "" : text.length <= letters ? text : `${text.slice(0, letters - 1)}…`;
    };
    return { left, width, top: number(rect, "y"), text, element: group, place };
  });
  const write = (x: number, anchor: string) => {
    const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
    for (const [key, value] of Object.entries({ x, y: 20, "text-anchor": anchor, "font-size": 12, fill: "currentColor" })) text.setAttribute(key, String(value));
    svg.append(text);
    return text;
  };
  // The background decides whether text is dark or light.
  const paper = svg.querySelector("rect")?.getAttribute("fill") ?? "#ffffff";
  svg.style.color = Number.parseInt(paper.slice(1, 3), 16) < 128 ? "#e6eaee" : "#1c2228";
  const status = write(full - 8, "end");
  status.setAttribute("y", "36");
  const flame = new Flame(boxes, svg, (text) => (status.textContent = text));
  const reset = () => {
    flame.search("");
    flame.zoom(null);
  };
  const acts: [string, () => void][] = [
    ["Copy path", () => void flame.copy()],
    ["Reset", reset],
    ["Search", () => flame.search(prompt("Search calls") ?? "")],
  ];
  let right = full - 8;
  for (const [label, act] of acts) {
    const text = write(right, "end");
    text.textContent = label;
    for (const [key, value] of Object.entries({ role: "button", tabindex: "0", "text-decoration": "underline", style: "cursor: pointer" })) text.setAttribute(key, value);
    text.addEventListener("click", act);
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      act();
    });
    right -= label.length * 7 + 14;
  }
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  style.textContent = "g { cursor: pointer } g.chosen rect, g.found rect { stroke: currentColor; stroke-width: 2 }";
  svg.append(style);
}

if (document.documentElement instanceof SVGSVGElement) inPicture(document.documentElement);
else for (const area of document.querySelectorAll<HTMLElement>(".flame")) inPage(area);
