// How every view looks, wide and narrow, compared with golden images.

import { pathToFileURL } from "node:url";
import { expect, fixture, looks, open, pointAt, test, waves } from "./reader.mjs";

const SOLVER = fixture("run/solver.flood");
const TORCH = fixture("torch/snapshot_torch2.11.pickle.gz");
const NSYS = fixture("nsys/small_2025.3.sqlite");
const STACKS = fixture("memory_logger/gdb_pstack.log");
const rmm = (desk) => desk.write("rmm_log.dev0.csv", waves());

/** Thin bars are few pixels. */
const STRICT = { maxDiffPixelRatio: 0.0005 };

/** Views that only have to be looked at: name, input, place. */
const views = [
  ["header-torch", () => TORCH, "header"],
  ["header-rmm", rmm, "header"],
  ["header-run", () => SOLVER, "header"],
  ["header-lost", () => STACKS, "header"],
  ["timeline-rmm", rmm, "#chart-0"],
  ["timeline-free", rmm, "#chart-1 .chart"],
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
  test(name, async ({ page, desk }) => {
    await open(page, desk.report(input(desk)));
    await looks(page, name, page.locator(place), options);
  });
}

test("a chosen dot", async ({ page, desk }) => {
  await open(page, desk.report(SOLVER));
  await page.locator(".dot:visible").last().click({ force: true });
  await looks(page, "chosen-stack", page.locator("#chosen-stack"));
});

test("a block with its stack", async ({ page, desk }) => {
  await open(page, desk.report(NSYS));
  await page.locator("#live .open").first().click();
  await looks(page, "block-stack", page.locator("#live .detail"));
});

test("the icicle, entered", async ({ page, desk }) => {
  await open(page, desk.report(NSYS));
  await page.locator(".icicle canvas").focus();
  for (const key of ["ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key);
  await looks(page, "icicle-entered", page.locator(".icicle"));
});

test("holders as a table", async ({ page, desk }) => {
  await open(page, desk.report(NSYS));
  await page.locator("#travel summary").click();
  await looks(page, "table-holders", page.locator("#travel details"));
});

test("the legend of a timeline that is pointed at", async ({ page, desk }) => {
  await open(page, desk.report(SOLVER));
  await pointAt(page, "#chart-0", 0.6);
  await expect(page.locator("#chart-0 .chart")).toHaveScreenshot("timeline-pointed.png");
  await expect(page.locator("#output")).toHaveScreenshot("output-pointed.png");
});

test("a timeline near its peak", async ({ page, desk }) => {
  await open(page, desk.report(rmm(desk)));
  await page.getByRole("button", { name: "Zoom to the peak" }).click();
  await looks(page, "timeline-peak", page.locator("#chart-0 .chart"));
});

test("a timeline whose scales follow what is in sight", async ({ page, desk }) => {
  await open(page, desk.report(TORCH));
  const button = (name) => page.locator("#chart-0").getByRole("button", { name });
  // First where memory is low, then where it is highest.
  for (let times = 0; times < 3; times++) await button("Zoom in").click();
  await button("Zoom to the peak").click();
  await looks(page, "timeline-zoomed", page.locator("#chart-0 .chart"));
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
    test(name, async ({ page, desk }) => {
      await open(page, desk.report(input));
      await looks(page, name, page.locator(place));
    });
  }
});

test("on paper", async ({ page, desk }) => {
  await open(page, desk.report(SOLVER));
  await page.emulateMedia({ media: "print" });
  // A sheet of A4.
  await page.setViewportSize({ width: 718, height: 1047 });
  await expect(page.locator("#page")).toHaveScreenshot("print.png");
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(718);
});

test.describe("without scripts", () => {
  test.use({ javaScriptEnabled: false });
  test("sentences and tables are there", async ({ page, desk }) => {
    await page.goto(pathToFileURL(desk.report(NSYS)).href);
    await expect(page.locator(".static")).toContainText(/Memory rose to .*Sizes of allocations/s);
    for (const [width, height] of [[1280, 900], [400, 800]]) {
      await page.setViewportSize({ width, height });
      await expect(page).toHaveScreenshot(`no-script-${width}.png`);
    }
  });
});
