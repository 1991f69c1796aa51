// Creates elements. Text always becomes a text node; nothing here accepts markup.

type Child = Node | string | null | undefined;
type Attributes = Record<string, string | number | boolean | null | ((event: Event) => void)>;

export function make<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[Name] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null) element.setAttribute(key, String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

/** Creates a section with a heading that links can refer to. */
export function section(id: string, title: string, note: string, ...children: Child[]): HTMLElement {
  const heading = make("h2", { id: `${id}-title` }, title);
  const remark = note ? make("p", { class: "note" }, note) : null;
  return make("section", { id, "aria-labelledby": `${id}-title` }, heading, remark, ...children);
}

/** Copies text to the clipboard; returns whether the browser allowed it. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page in a frame may not use the clipboard.
    return false;
  }
}

/** Returns the value of a CSS variable. */
export function style(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Sizes a canvas for the resolution of the screen and returns its empty context, in CSS pixels; null if there is none. */
export function cleared(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context?.scale(ratio, ratio);
  return context;
}
