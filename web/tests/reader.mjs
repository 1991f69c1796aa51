// What all specs share: a desk with reports on it, a page that must stay quiet, and golden images.
//
// A page fails its test by any error or warning on the console, any dialog and any request beyond `reachable`.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { test as base, expect } from "@playwright/test";

export { expect };

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
/** The command; what else tests need of the workspace is built beside it. */
const program = resolve(process.env.FLOODMARK ?? join(root, "target/debug/floodmark"));
/** The widths that every view is looked at in. */
const SIZES = [
  { width: 1280, height: 900 },
  { width: 400, height: 800 },
];

/** A file of `fixtures/`. */
export const fixture = (name) => join(root, "fixtures", name);

/** A folder with the program at hand; reports are made once. */
class Desk {
  folder = mkdtempSync(join(tmpdir(), "floodmark-web-"));
  #reports = new Map();

  path(name) {
    return join(this.folder, name);
  }

  write(name, content) {
    writeFileSync(this.path(name), content);
    return this.path(name);
  }

  /** Runs the program, returns what it printed. */
  run(...args) {
    // In the folder of fixtures, so that they can be named as they are on every machine.
    return execFileSync(program, args, { cwd: fixture(""), encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 });
  }

  /** Starts the program and leaves it running; whoever starts it ends it. */
  start(...args) {
    return spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  }

  /** Starts a program that is built beside this one. */
  startOther(name, ...args) {
    return spawn(join(dirname(program), name), args, { stdio: ["ignore", "pipe", "pipe"] });
  }

  json(...args) {
    return JSON.parse(this.run(...args, "--json"));
  }

  /** The report of an input. */
  report(input, ...options) {
    const key = JSON.stringify([input, options]);
    if (!this.#reports.has(key)) {
      const file = this.path(`report-${this.#reports.size}.html`);
      const here = relative(fixture(""), input);
      this.run("report", here.startsWith("..") ? input : here, "-o", file, "--quiet", ...options);
      this.#reports.set(key, file);
    }
    return this.#reports.get(key);
  }

  clear() {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

export const test = base.extend({
  /** Addresses that a page may ask for. */
  reachable: [/^(file|data|blob):/, { option: true }],

  desk: [
    async ({}, use) => {
      const desk = new Desk();
      await use(desk);
      desk.clear();
    },
    { scope: "worker" },
  ],

  page: async ({ page, reachable }, use) => {
    const troubles = [];
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && troubles.push(message.text()));
    page.on("pageerror", (error) => troubles.push(String(error)));
    page.on("request", (request) => reachable.test(request.url()) || troubles.push(`asks for ${request.url()}`));
    page.on("dialog", (dialog) => {
      troubles.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    await use(page);
    expect(troubles, "what the page complained of or asked for").toEqual([]);
  },
});

/** Tests that serve inputs; what they started ends with them. */
export const serving = (test) => test.extend({
  serve: async ({ desk }, use) => {
    const started = [];
    await use(async (input, ...options) => {
      const server = desk.start("serve", input, ...options);
      started.push(server);
      const [url] = await once(createInterface({ input: server.stdout }), "line");
      return { url, server };
    });
    for (const child of started) child.kill("SIGKILL");
  },
});

/** Opens a report and waits until it is drawn. */
export async function open(page, file) {
  await page.goto(pathToFileURL(file).href);
  await expect(page.locator("html")).toHaveAttribute("data-ready", /true|failed/);
  await expect(page.locator("html")).toHaveAttribute("data-ready", "true");
}

/** What a report carries along. */
export function documentOf(page) {
  return page.evaluate(() => JSON.parse(document.getElementById("floodmark-data").textContent));
}

/** Compares a view with its golden images, in all widths; none of them may scroll the page sideways. */
export async function looks(page, name, locator, options = {}) {
  // Alone on the page: what stands above decides by fractions of a pixel how a line is drawn.
  const hidden = await locator.evaluateHandle((element) => {
    const others = [];
    for (let at = element; at.parentElement && at !== document.body; at = at.parentElement) {
      others.push(...[...at.parentElement.children].filter((other) => other !== at && other.style));
    }
    const shown = others.map((other) => [other, other.style.display]);
    for (const [other] of shown) other.style.display = "none";
    return shown;
  });
  for (const size of SIZES) {
    await page.setViewportSize(size);
    // Nothing is pointed at.
    await page.mouse.move(0, 0);
    await expect(locator).toHaveScreenshot(`${name}-${size.width}.png`, options);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide, `${name} scrolls sideways at ${size.width}`).toBeLessThanOrEqual(size.width);
  }
  await page.setViewportSize(SIZES[0]);
  await hidden.evaluate((shown) => shown.forEach(([other, display]) => (other.style.display = display)));
}

/** Points at a timeline, at a share of its width; returns what its legend says. */
export async function pointAt(page, chart, share) {
  const over = page.locator(`${chart} .u-over`);
  await over.scrollIntoViewIfNeeded();
  const { width } = await over.boundingBox();
  await over.hover({ position: { x: Math.min(width - 1, Math.max(1, width * share)), y: 40 } });
  return page.locator(`${chart} .u-legend`).textContent();
}

/** What the legend says at a share of a timeline's width; twice, so that the pointer moves. */
export async function legendAt(page, chart, share) {
  await pointAt(page, chart, 0.5);
  return pointAt(page, chart, share);
}

/** Picks the instant at a share of the first timeline. */
export async function pick(page, share, modifiers = []) {
  await pointAt(page, "#chart-0", share);
  const over = page.locator("#chart-0 .u-over");
  const { width } = await over.boundingBox();
  await over.click({ position: { x: Math.min(width - 1, Math.max(1, width * share)), y: 40 }, modifiers });
}

/** All rows of a table that is on the page, each cell as text; bytes are exact. */
export async function rowsOf(table) {
  // Some are made when they are opened only.
  await table.locator("tbody").waitFor({ state: "attached" });
  const more = table.getByRole("button", { name: "Show more" });
  while ((await more.count()) > 0) await more.click();
  return table.locator("tbody").evaluate((body) =>
    Array.from(body.rows, (row) => Array.from(row.cells, (cell) => (cell.classList.contains("bytes") ? cell.title : cell.innerText))),
  );
}

/** A log of RMM with three threads whose blocks grow, stay and go; always the same. */
export function waves(events = 6000) {
  let seed = 7;
  const random = (below) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return Math.floor((seed / 2147483648) * below);
  };
  const two = (number) => String(number).padStart(2, "0");
  const clock = (at) => `10:${two(Math.floor(at / 6000))}:${two(Math.floor(at / 100) % 60)}.${two(at % 100)}0000`;
  const lines = ["Thread,Time,Action,Pointer,Size,Stream"];
  const live = [];
  for (let at = 0; at < events; at++) {
    const time = clock(at);
    const wave = 40 + 35 * Math.sin(at / 700);
    if (live.length > wave && random(3) > 0) {
      const [block] = live.splice(random(live.length), 1);
      lines.push(`${block.thread},${time},free,${block.pointer},${block.size},${block.stream}`);
    } else {
      const thread = 100 + random(3);
      const pointer = `0x${(0x7f0000000000 + at * 0x10000000).toString(16)}`;
      const block = { thread, pointer, size: 256 << random(18), stream: `0x${thread % 2}` };
      live.push(block);
      lines.push(`${thread},${time},allocate,${block.pointer},${block.size},${block.stream}`);
    }
  }
  // One that there was no memory for.
  lines.push(`101,${clock(events)},allocate failure,0x0,68719476736,0x1`);
  return `${lines.join("\n")}\n`;
}
