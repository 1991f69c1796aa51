// Light or dark theme: that of the system, unless the reader chooses one.

import { make } from "./dom";

const KEY = "floodmark-theme";
const CHOICES = ["auto", "light", "dark"] as const;
type Choice = (typeof CHOICES)[number];

const listeners = new Set<() => void>();

/** Calls `redraw` whenever colors change. Returns a function that removes it. */
export function onColors(redraw: () => void): () => void {
  listeners.add(redraw);
  return () => listeners.delete(redraw);
}

function stored(): Choice {
  try {
    const choice = localStorage.getItem(KEY);
    return CHOICES.find((one) => one === choice) ?? "auto";
  } catch {
    // Storage may be disabled for files.
    return "auto";
  }
}

function setTheme(choice: Choice): void {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  for (const redraw of listeners) redraw();
}

function apply(choice: Choice): void {
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // The choice then lasts until the page is closed.
  }
  setTheme(choice);
}

export function themeButton(): HTMLElement {
  let choice = stored();
  const button = make("button", { type: "button", id: "theme" });
  const label = () => {
    button.textContent = `Colors: ${choice}`;
  };
  button.addEventListener("click", () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length] ?? "auto";
    apply(choice);
    label();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const redraw of listeners) redraw();
  });
  // Print in light colors.
  addEventListener("beforeprint", () => setTheme("light"));
  addEventListener("afterprint", () => setTheme(choice));
  apply(choice);
  label();
  return button;
}
