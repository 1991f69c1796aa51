// Compares every view with golden images, in a wide and a narrow window.

import { pathToFileURL } from "node:url";
import { expect, fixture, matchesGolden, open, pointAt, reveal, test, waves } from "./fixtures.mjs";

const SOLVER = fixture("run/solver.flood");
const TORCH = fixture("torch/snapshot_torch2.11.pickle.gz");
const NSYS = fixture("nsys/small_2025.3.sqlite");
const STACKS = fixture("memory_logger/gdb_pstack.log");
const rmm = (workdir) => workdir.write("rmm_log.dev0.csv", waves());

/** Thin bars have few pixels. */
const STRICT = { maxDiffPixelRatio: 0.0005 };

/** Views that need no interaction: name, input, selector, options. */
const views = [
  ["story-lost", () => STACKS, "aside"],
  ["timeline-free", () => TORCH, "#chart-1 .chart"],
  ["timeline-run", () => SOLVER, "#timeline"],
  ["timeline-devices", () => fixture("smi/two_gpus.csv"), "#chart-0"],
  ["output", () => SOLVER, "#output"],
  ["icicle-nsys", () => NSYS, ".icicle"],
  ["icicle-rmm", rmm, ".icicle"],
  ["table-held", () => TORCH, "#held", STRICT],
  ["table-live", () => NSYS, "#live"],
  ["table-functions", () => NSYS, "#functions"],
  ["table-leaks", () => NSYS, "#leaks"],
  ["table-sizes", () => NSYS, "#sizes"],
  ["table-processes", () => SOLVER, "#processes"],
  ["table-phases", () => SOLVER, "#phases"],
];

/** First screens: name, input. */
const screens = [
  ["torch", () => TORCH],
  ["nsys", () => NSYS],
  ["rmm", rmm],
  ["run", () => SOLVER],
  ["ranks", () => fixture("run/ranks.flood")],
];

/** Compares what a reader sees first, without scrolling, and the part of the page that a narrow window shows first. */
async function screen(page, name, file) {
  for (const [width, height] of [[1280, 800], [400, 800]]) {
    await page.setViewportSize({ width, height });
    await open(page, file);
    await page.mouse.move(0, 0);
    await expect(page).toHaveScreenshot(`${name}-${width}.png`);
    const [wide, tall] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]);
    expect(wide, "scrolls sideways").toBeLessThanOrEqual(width);
    if (width > 1000) expect(tall, "scrolls down").toBeLessThanOrEqual(height);
  }
}

for (const [name, input] of screens) {
  test(`first screen of ${name}`, async ({ page, workdir }) => screen(page, `screen-${name}`, workdir.report(input(workdir))));
}

for (const [name, input, place, options] of views) {
  test(name, async ({ page, workdir }) => {
    await open(page, workdir.report(input(workdir)));
    await matchesGolden(page, name, page.locator(place), options);
  });
}

test("the stack of a dot", async ({ page, workdir }) => {
  await open(page, workdir.report(SOLVER));
  await page.locator(".dot:visible").last().click({ force: true });
  await matchesGolden(page, "chosen-stack", page.locator("#chosen-stack"));
});

test("a block with its stack", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  await reveal(page.locator("#live"));
  await page.locator("#live .open").first().click();
  await matchesGolden(page, "block-stack", page.locator("#live .detail"));
});

test("the icicle graph, zoomed in", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  await page.locator(".icicle canvas").focus();
  for (const key of ["ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key);
  await matchesGolden(page, "icicle-entered", page.locator(".icicle"));
});

test("the icicle graph as a table", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  await page.locator("#panel-flame summary").click();
  await matchesGolden(page, "table-holders", page.locator("#panel-flame details"));
});

test("the legend of a timeline under the pointer", async ({ page, workdir }) => {
  await open(page, workdir.report(SOLVER));
  await pointAt(page, "#chart-0", 0.6);
  await expect(page.locator("#chart-0 .chart")).toHaveScreenshot("timeline-pointed.png");
});

test("a timeline near its peak", async ({ page, workdir }) => {
  await open(page, workdir.report(rmm(workdir)));
  await page.getByRole("button", { name: "Zoom to peak" }).click();
  await matchesGolden(page, "timeline-peak", page.locator("#chart-0 .chart"));
});

test("the scales of a zoomed timeline", async ({ page, workdir }) => {
  await open(page, workdir.report(TORCH));
  const button = (name) => page.locator("#chart-0").getByRole("button", { name });
  // Zooms in where memory is low, then at the peak.
  for (let times = 0; times < 3; times++) await button("Zoom in").click();
  await button("Zoom to peak").click();
  await matchesGolden(page, "timeline-zoomed", page.locator("#chart-0 .chart"));
});

test.describe("dark", () => {
  test.use({ colorScheme: "dark" });
  const dark = [
    ["dark-output", SOLVER, "#output .output"],
    ["dark-icicle", NSYS, ".icicle"],
    ["dark-held", NSYS, "#held"],
    ["dark-addresses", NSYS, "#addresses-0 .addresses"],
  ];
  for (const [name, input] of [screens[0], screens[3]]) {
    test(`first screen of ${name}`, async ({ page, workdir }) => screen(page, `dark-screen-${name}`, workdir.report(input(workdir))));
  }
  for (const [name, input, place] of dark) {
    test(name, async ({ page, workdir }) => {
      await open(page, workdir.report(input));
      await matchesGolden(page, name, page.locator(place));
    });
  }
});

test("in print", async ({ page, workdir }) => {
  await open(page, workdir.report(SOLVER));
  await page.emulateMedia({ media: "print" });
  // A sheet of A4.
  await page.setViewportSize({ width: 718, height: 1047 });
  await expect(page.locator("#page")).toHaveScreenshot("print.png");
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(718);
});

test.describe("without scripts", () => {
  test.use({ javaScriptEnabled: false });
  test("summary and tables are shown", async ({ page, workdir }) => {
    await page.goto(pathToFileURL(workdir.report(NSYS)).href);
    await expect(page.locator(".static")).toContainText(/Memory rose to .*Sizes of allocations/s);
    for (const [width, height] of [[1280, 800], [400, 800]]) {
      await page.setViewportSize({ width, height });
      await expect(page).toHaveScreenshot(`no-script-${width}.png`);
    }
  });
});
