// Compares every view with golden images, in a wide and a narrow window.

import { pathToFileURL } from "node:url";
import { expect, fixture, matchesGolden, open, pointAt, test, waves } from "./fixtures.mjs";

const SOLVER = fixture("run/solver.flood");
const TORCH = fixture("torch/snapshot_torch2.11.pickle.gz");
const NSYS = fixture("nsys/small_2025.3.sqlite");
const STACKS = fixture("memory_logger/gdb_pstack.log");
const rmm = (workdir) => workdir.write("rmm_log.dev0.csv", waves());

/** Thin bars have few pixels. */
const STRICT = { maxDiffPixelRatio: 0.0005 };

/** Views that need no interaction: name, input, selector, options. */
const views = [
  ["header-torch", () => TORCH, "header"],
  ["header-rmm", rmm, "header"],
  ["header-run", () => SOLVER, "header"],
  ["header-lost", () => STACKS, "header"],
  ["timeline-rmm", rmm, "#chart-0"],
  ["timeline-free", () => TORCH, "#chart-1 .chart"],
  ["timeline-run", () => SOLVER, "#chart-0"],
  ["timeline-devices", () => fixture("smi/two_gpus.csv"), "#chart-0"],
  ["output", () => SOLVER, "#output"],
  ["icicle-nsys", () => NSYS, ".icicle"],
  ["icicle-rmm", rmm, ".icicle"],
  ["table-held", () => TORCH, "#held", STRICT],
  ["table-live", () => NSYS, "#live"],
  ["table-functions", () => NSYS, "#functions"],
  ["table-threads", rmm, "#threads"],
  ["table-churn", () => NSYS, "#churn"],
  ["table-leaks", () => NSYS, "#leaks"],
  ["table-sizes", () => NSYS, "#sizes"],
  ["table-block-sizes", () => NSYS, "#block-sizes"],
  ["table-ledgers", () => TORCH, "#ledgers"],
  ["table-facts", () => TORCH, "#facts"],
  ["table-processes", () => SOLVER, "#processes"],
  ["table-phases", () => SOLVER, "#phases"],
  ["table-about", () => SOLVER, "#about"],
  ["table-devices", () => fixture("smi/two_gpus.csv"), "#device-memory"],
];

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
  await page.locator("#travel summary").click();
  await matchesGolden(page, "table-holders", page.locator("#travel details"));
});

test("the legend of a timeline under the pointer", async ({ page, workdir }) => {
  await open(page, workdir.report(SOLVER));
  await pointAt(page, "#chart-0", 0.6);
  await expect(page.locator("#chart-0 .chart")).toHaveScreenshot("timeline-pointed.png");
  await expect(page.locator("#output")).toHaveScreenshot("output-pointed.png");
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
    ["dark-header", STACKS, "header"],
    ["dark-timeline", SOLVER, "#chart-0 .chart"],
    ["dark-output", SOLVER, "#output .output"],
    ["dark-icicle", NSYS, ".icicle"],
    ["dark-held", NSYS, "#held"],
    ["dark-addresses", NSYS, "#addresses-0 .addresses"],
  ];
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
    for (const [width, height] of [[1280, 900], [400, 800]]) {
      await page.setViewportSize({ width, height });
      await expect(page).toHaveScreenshot(`no-script-${width}.png`);
    }
  });
});
