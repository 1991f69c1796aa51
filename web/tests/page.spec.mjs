// The page as a place to work: layout, story, overview, tabs, divided timelines, flame graph; by mouse and by keyboard.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { documentOf, expect, fixture, legendAt, open, pick, reveal, test, waves } from "./fixtures.mjs";

const TORCH = fixture("torch/snapshot_torch2.11.pickle.gz");
const NSYS = fixture("nsys/small_2025.3.sqlite");
const SOLVER = fixture("run/solver.flood");
const RANKS = fixture("run/ranks.flood");
const rmm = (workdir) => workdir.write("rmm_log.dev0.csv", waves());
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const tab = (page, name) => page.getByRole("tab", { name, exact: true });
const range = async (page) => {
  const time = async (share) => Number(/\+([\d.]+) s/.exec(await legendAt(page, "#chart-0", share))[1]);
  return [await time(0), await time(1)];
};

test("the first screen has the story, the timeline and the flame graph without scrolling", async ({ page, workdir }) => {
  for (const input of [TORCH, NSYS, rmm(workdir)]) {
    await open(page, workdir.report(input));
    for (const place of ["#story", "#overview", "#chart-0 .u-over", "#travel", ".icicle canvas"]) await expect(page.locator(place)).toBeInViewport();
    expect(await page.evaluate(() => document.documentElement.scrollHeight)).toBe(800);
  }
});

test("sentences of the story lead to their evidence", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  const instant = page.locator("#instant");
  const peak = await instant.textContent();
  await pick(page, 0.3);
  await expect(instant).not.toHaveText(peak);
  // By mouse: the peak.
  await page.locator("#story .lead a").click();
  await expect(instant).toHaveText(peak);
  // By keyboard: what held it is found in the flame graph.
  await page.locator("#story a", { hasText: "peak [t]" }).first().focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("searchbox", { name: "Search calls" })).toHaveValue(/^peak\(\)/);
  await expect(page.locator("#found")).toContainText("1 call matches: 64.0 MiB");
  // What was never freed has a tab of its own.
  await page.locator("#story a", { hasText: /in 5 blocks/ }).click();
  await expect(tab(page, "Never freed")).toHaveAttribute("aria-selected", "true");
  await expect(page.locator("#leaks")).toBeInViewport();
  await page.goBack();
  await page.goForward();
});

test("what to try is the peak without the site, at all instants", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  const { story, snapshots } = await documentOf(page);
  expect(snapshots.exact).toBe(true);
  const sentence = story.map(({ parts }) => parts.map(({ text }) => text).join("")).find((text) => text.startsWith("To try: "));
  expect(sentence).toBe("To try: free or shrink what peak [t] holds. Without it the peak would be 59.0 MiB lower (75 %).");
});

test("tabs are selected by mouse and by keyboard, and are part of the address", async ({ page, workdir }) => {
  await open(page, workdir.report(TORCH));
  await tab(page, "Sites").click();
  await expect(page.locator("#held")).toBeVisible();
  await expect(page.locator(".icicle")).toBeHidden();
  await page.keyboard.press("ArrowRight");
  await expect(tab(page, "Blocks")).toBeFocused();
  await expect(page.locator("#live")).toBeVisible();
  await expect.poll(() => new URL(page.url()).hash).toBe("#tab=blocks");
  await page.keyboard.press("End");
  await expect(page.locator("#facts")).toBeVisible();
  await page.keyboard.press("Home");
  await expect(page.locator(".icicle")).toBeVisible();
  // Timelines are tabs too.
  await tab(page, "Free bytes between live blocks").click();
  await expect(page.locator("#chart-1 .u-over")).toBeVisible();
  await expect(page.locator("#chart-0 .u-over")).toBeHidden();
});

test("the overview zooms by dragging, moves its window and works by keyboard", async ({ page, workdir }) => {
  await open(page, workdir.report(rmm(workdir)));
  const strip = page.locator("#overview canvas");
  const { x, y, width } = await strip.boundingBox();
  const drag = async (from, to) => {
    await page.mouse.move(x + width * from, y + 20);
    await page.mouse.down();
    await page.mouse.move(x + width * ((from + to) / 2), y + 20);
    await page.mouse.move(x + width * to, y + 20);
    await page.mouse.up();
  };
  const near = (actual, expected) => actual.forEach((value, at) => expect(Math.abs(value - expected[at])).toBeLessThan(0.3));
  const { span } = await documentOf(page);
  const seconds = span / 1e9;
  await drag(0.2, 0.5);
  near(await range(page), [seconds * 0.2, seconds * 0.5]);
  // The window moves, then its right edge.
  await drag(0.35, 0.45);
  near(await range(page), [seconds * 0.3, seconds * 0.6]);
  await drag(0.6, 0.8);
  near(await range(page), [seconds * 0.3, seconds * 0.8]);
  await strip.focus();
  await page.keyboard.press("End");
  near(await range(page), [seconds * 0.5, seconds]);
  await page.keyboard.press("+");
  near(await range(page), [seconds * 0.625, seconds * 0.875]);
  await page.keyboard.press("0");
  near(await range(page), [0, seconds]);
});

test("a page opens where something happens, and shows all on request", async ({ page, workdir }) => {
  await open(page, workdir.report(TORCH));
  const { active, span, charts } = await documentOf(page);
  expect(active.to - active.from).toBeLessThan(span / 2);
  expect(charts[0].peak.time).toBeGreaterThan(active.from);
  expect((await range(page))[0]).toBeGreaterThan(3);
  await page.locator("#chart-0").getByRole("button", { name: "Show all" }).click();
  expect((await range(page))[0]).toBeLessThan(0.01);
  await expect.poll(() => new URL(page.url()).hash).toMatch(/^#from=0&to=3\.\d+$/);
});

test("the areas of every division add up to the live bytes of every snapshot", async ({ page, workdir }) => {
  for (const input of [TORCH, NSYS, rmm(workdir), workdir.write("long_log.dev0.csv", waves(60_000))]) {
    await open(page, workdir.report(input));
    const wrong = await page.evaluate(async () => {
      const { snapshots } = JSON.parse(document.getElementById("floodmark-data").textContent);
      const numbers = async ({ column, length }) => {
        const text = document.getElementById(`floodmark-column-${column}`).textContent;
        const stream = new Blob([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream("deflate"));
        const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
        const list = [];
        for (let at = 0, value = 0n; list.length < length; ) {
          let zigzag = 0n;
          for (let shift = 0n, byte = 128; byte >= 128; shift += 7n) {
            byte = bytes[at++];
            zigzag |= BigInt(byte & 127) << shift;
          }
          value += zigzag & 1n ? -((zigzag + 1n) >> 1n) : zigzag >> 1n;
          list.push(Number(value));
        }
        return list;
      };
      const totals = await numbers(snapshots.bytes);
      const wrong = [];
      for (const { by, bands, snapshots: at, bytes } of snapshots.breakdowns) {
        const [band, from, held] = [await numbers(bands), await numbers(at), await numbers(bytes)];
        const sums = totals.map(() => 0);
        for (let step = 0; step < band.length; step++) {
          const end = band[step + 1] === band[step] ? from[step + 1] : totals.length;
          for (let snapshot = from[step]; snapshot < end; snapshot++) sums[snapshot] += held[step];
        }
        if (sums.some((sum, snapshot) => sum !== totals[snapshot])) wrong.push(by);
      }
      return { wrong, count: snapshots.breakdowns.length };
    });
    expect(wrong.count).toBeGreaterThan(0);
    expect(wrong.wrong).toEqual([]);
  }
});

test("a division is chosen, pointed at and followed into the flame graph", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  const legend = page.locator("#chart-0 .layers");
  await expect(legend.getByRole("button", { name: /^peak/ })).toContainText("64.0 MiB");
  await pick(page, 0.05);
  await expect(legend.getByRole("button", { name: /^peak/ })).toContainText("-");
  await legend.getByRole("button", { name: /^leak/ }).focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("searchbox", { name: "Search calls" })).toHaveValue(/^leak/);
  await page.locator("#stacked").selectOption("size");
  await expect(legend.getByRole("button").first()).toContainText("64.0 MiB to 128.0 MiB");
  await page.locator("#stacked").selectOption("block");
  await page.locator("#chart-0 .u-over").hover({ position: { x: 400, y: 120 } });
  await expect.poll(() => new URL(page.url()).hash).toContain("stack=block");
  await page.locator("#stacked").selectOption("nothing");
  await expect(legend).toBeHidden();
});

test("the memory of a run is divided by process", async ({ page, workdir }) => {
  await open(page, workdir.report(RANKS));
  await page.locator("#stacked").selectOption("process");
  await expect(page.locator("#chart-0 .layers button", { hasText: "solver" })).toHaveCount(4);
  await page.locator("#chart-0 .layers button").first().click();
  await expect(tab(page, "Processes")).toHaveAttribute("aria-selected", "true");
});

test("a flame graph is reset, and a path is copied", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  const canvas = page.locator(".icicle canvas");
  await canvas.focus();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key);
  await page.getByRole("button", { name: "Copy path" }).click();
  await expect(page.locator(".icicle .description")).toHaveText(/^Copied \d calls\.$/);
  expect((await page.evaluate(() => navigator.clipboard.readText())).split("\n").at(-1)).toContain("peak()");
  await page.getByRole("searchbox", { name: "Search calls" }).fill("main");
  await page.getByRole("button", { name: "Reset" }).click();
  await expect(page.locator(".crumbs button")).toHaveCount(1);
  await expect(page.locator("#found")).toBeHidden();
});

const TINY = "tiny.csv";

/** Flame graphs outside reports: a page, a picture and a comparison. */
for (const [name, args] of [
  ["a page", ["flame", NSYS, "-o", "flame.html"]],
  ["a picture", ["flame", NSYS, "-o", "flame.svg"]],
  ["a comparison", ["diff", NSYS, TINY, "--html", "diff.html"]],
]) {
  test(`${name} of \`floodmark ${args[0]}\` zooms, searches and resets`, async ({ page, workdir }) => {
    const file = workdir.path(args.at(-1));
    const tiny = workdir.write("tiny.csv", "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000000,allocate,0x1000,4096,0x0\n");
    workdir.run(...args.slice(0, -1).map((arg) => (arg === TINY ? tiny : arg)), file, "--force");
    await page.goto(pathToFileURL(file).href);
    const isPicture = file.endsWith(".svg");
    const box = (text) => page.locator(isPicture ? "g" : ".flame > div", { hasText: text }).first();
    const width = async (text) => (await (isPicture ? box(text).locator("rect") : box(text)).boundingBox())?.width ?? 0;
    const before = await width("leak()");
    expect(before).toBeGreaterThan(20);
    await box("leak()").click();
    expect(await width("leak()")).toBeGreaterThan(before * 3);
    await expect(box("peak()")).toBeHidden();
    await page.getByRole("button", { name: "Reset" }).click();
    // An outline adds up to two pixels.
    expect(Math.abs((await width("leak()")) - before)).toBeLessThan(3);
    // By keyboard.
    await page.locator(isPicture ? "svg" : ".flame").focus();
    for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key);
    await expect(box("leak()")).toBeHidden();
    for (let times = 0; times < 4; times++) await page.keyboard.press("Escape");
    await expect(box("leak()")).toBeVisible();
    if (isPicture) return;
    await page.getByRole("searchbox").fill("leak()");
    await expect(page.getByRole("status")).toHaveText(/^1 call matches: (19\.0|100\.0) % of all\.$/);
  });
}

/** Returns what axe finds, in a line per rule. */
const findings = (page, options) =>
  page.evaluate(async (options) => {
    const { violations } = await window.axe.run(document, options);
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target.join(" ")).slice(0, 3).join("; ")}`);
  }, options);

for (const [name, input] of [["a snapshot", TORCH], ["a run", SOLVER]]) {
  test(`axe finds nothing in ${name}`, async ({ page, workdir }) => {
    test.slow();
    await open(page, workdir.report(input));
    await page.evaluate(axe);
    for (const one of await page.locator("#work [role=tab]").all()) {
      await one.click();
      expect(await findings(page, {})).toEqual([]);
    }
    await page.emulateMedia({ colorScheme: "dark" });
    expect(await findings(page, { runOnly: ["color-contrast"] })).toEqual([]);
    await page.setViewportSize({ width: 400, height: 800 });
    expect(await findings(page, {})).toEqual([]);
  });
}

test("the keyboard reaches everything in the order of reading", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  await reveal(page.locator("#chart-0"));
  const order = [];
  for (let presses = 0; presses < 60; presses++) {
    await page.keyboard.press("Tab");
    order.push(await page.evaluate(() => {
      const at = document.activeElement;
      return at.closest("#story") ? "story" : at.closest("#overview") ? "overview" : at.closest("#timeline") ? "timeline" : at.closest("#travel") ? "instant" : at.closest(".icicle") ? "flame" : "";
    }));
  }
  const places = order.filter((place, at) => place && place !== order[at - 1]);
  expect(places.slice(0, 5)).toEqual(["story", "overview", "timeline", "instant", "flame"]);
});
