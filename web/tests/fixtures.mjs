// Fixtures and helpers of all specs: a working directory with reports, a page that must stay quiet, golden images.
//
// Any error or warning on the console, any dialog and any request outside `reachable` fails the test.

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
/** The command under test; other programs of the workspace are in the same directory. */
const program = resolve(process.env.FLOODMARK ?? join(root, "target/debug/floodmark"));
/** The window sizes of golden images. */
const SIZES = [
  { width: 1280, height: 800 },
  { width: 400, height: 800 },
];

/** Returns the path of a file in `fixtures/`. */
export const fixture = (name) => join(root, "fixtures", name);

/** A temporary directory in which the program runs; reports are cached. */
class WorkDir {
  directory = mkdtempSync(join(tmpdir(), "floodmark-web-"));
  #reports = new Map();

  path(name) {
    return join(this.directory, name);
  }

  write(name, content) {
    writeFileSync(this.path(name), content);
    return this.path(name);
  }

  /** Runs the program and returns its stdout. */
  run(...args) {
    // Runs in the directory of fixtures, so that their paths in reports are the same on every machine.
    return execFileSync(program, args, { cwd: fixture(""), encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 });
  }

  /** Starts the program; the caller must end it. */
  start(...args) {
    return spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  }

  /** Starts another program of the workspace. */
  startOther(name, ...args) {
    return spawn(join(dirname(program), name), args, { stdio: ["ignore", "pipe", "pipe"] });
  }

  json(...args) {
    return JSON.parse(this.run(...args, "--json"));
  }

  /** Returns the report of an input. */
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
    rmSync(this.directory, { recursive: true, force: true });
  }
}

export const test = base.extend({
  /** Addresses that a page may request. */
  reachable: [/^(file|data|blob):/, { option: true }],

  workdir: [
    async ({}, use) => {
      const workdir = new WorkDir();
      await use(workdir);
      workdir.clear();
    },
    { scope: "worker" },
  ],

  page: async ({ page, reachable }, use) => {
    const problems = [];
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(message.text()));
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("request", (request) => reachable.test(request.url()) || problems.push(`requested ${request.url()}`));
    page.on("dialog", (dialog) => {
      problems.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    await use(page);
    expect(problems, "errors, dialogs and requests of the page").toEqual([]);
  },
});

/** Adds a fixture that serves inputs; its servers end with the test. */
export const serving = (test) => test.extend({
  serve: async ({ workdir }, use) => {
    const started = [];
    await use(async (input, ...options) => {
      const server = workdir.start("serve", input, ...options);
      started.push(server);
      const [url] = await once(createInterface({ input: server.stdout }), "line");
      return { url, server };
    });
    for (const child of started) child.kill("SIGKILL");
  },
});

/** Opens a report and waits until it is complete. */
export async function open(page, file) {
  await page.goto(pathToFileURL(file).href);
  await expect(page.locator("html")).toHaveAttribute("data-ready", /true|failed/);
  await expect(page.locator("html")).toHaveAttribute("data-ready", "true");
}

/** Returns the document embedded in a report. */
export function documentOf(page) {
  return page.evaluate(() => JSON.parse(document.getElementById("floodmark-data").textContent));
}

/** Selects the tabs that contain an element; returns a function that selects the previous ones. */
export async function reveal(locator) {
  const changed = await locator.first().evaluateHandle((element) => {
    const before = [];
    for (let at = element; at; at = at.parentElement) {
      if (!at.matches("[role=tabpanel].inactive")) continue;
      const tab = document.getElementById(at.getAttribute("aria-labelledby"));
      before.push(tab.parentElement.querySelector("[aria-selected=true]"));
      tab.click();
    }
    return before;
  });
  return () => changed.evaluate((before) => before.forEach((tab) => tab.click()));
}

/** Compares an element with its golden images in all window sizes; none may make the page scroll sideways. */
export async function matchesGolden(page, name, locator, options = {}) {
  await reveal(locator);
  // Everything else is hidden, because elements above shift lines by fractions of a pixel.
  const hidden = await locator.evaluateHandle((element) => {
    const others = [];
    for (let at = element; at.parentElement && at !== document.body; at = at.parentElement) {
      others.push(...[...at.parentElement.children].filter((other) => other !== at && other.style));
    }
    const shown = others.map((other) => [other, "display", other.style.display]);
    for (const [other] of shown) other.style.display = "none";
    // Parts of the page scroll; here all of the element is compared.
    for (let at = element.parentElement; at && at !== document.documentElement; at = at.parentElement) {
      for (const [key, value] of [["overflow", "visible"], ["height", "auto"], ["display", "block"], ["maxHeight", "none"]]) {
        shown.push([at, key, at.style[key]]);
        at.style[key] = value;
      }
    }
    return shown;
  });
  for (const size of SIZES) {
    await page.setViewportSize(size);
    // Moves the pointer away.
    await page.mouse.move(0, 0);
    await expect(locator).toHaveScreenshot(`${name}-${size.width}.png`, options);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide, `${name} scrolls sideways at ${size.width}`).toBeLessThanOrEqual(size.width);
  }
  await page.setViewportSize(SIZES[0]);
  await hidden.evaluate((shown) => shown.forEach(([other, key, value]) => (other.style[key] = value)));
}

/** Points at a timeline at a share of its width and returns its legend. */
export async function pointAt(page, chart, share) {
  const over = page.locator(`${chart} .u-over`);
  await reveal(over);
  await over.scrollIntoViewIfNeeded();
  const { width } = await over.boundingBox();
  await over.hover({ position: { x: Math.min(width - 1, Math.max(1, width * share)), y: 40 } });
  return page.locator(`${chart} .u-legend`).textContent();
}

/** Returns the legend at a share of a timeline's width, after moving the pointer from elsewhere. */
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

/** Returns the text of all cells of a table; bytes are exact. */
export async function rowsOf(table) {
  // Some tables are created when they are opened.
  await table.locator("tbody").waitFor({ state: "attached" });
  const goBack = await reveal(table);
  const more = table.getByRole("button", { name: "Show more" });
  while ((await more.count()) > 0) await more.click();
  const rows = await table.locator("tbody").evaluate((body) =>
    Array.from(body.rows, (row) => Array.from(row.cells, (cell) => (cell.classList.contains("bytes") ? cell.title : cell.innerText))),
  );
  await goBack();
  return rows;
}

/** Returns a reproducible RMM log of three threads whose live blocks rise and fall. */
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
  // A failed allocation.
  lines.push(`101,${clock(events)},allocate failure,0x0,68719476736,0x1`);
  return `${lines.join("\n")}\n`;
}
