// The lane of ranges: scopes of a program under its timeline.

import { documentOf, expect, open, test } from "./fixtures.mjs";

const HOSTILE = "step <img src=x onerror=alert(1)>\u202e";

/** Returns a trace of PyTorch's profiler with one epoch of three steps, and more short ranges than a page shows. */
function profile(short = 0) {
  const at = (microseconds) => 1_000_000 + microseconds;
  const range = (name, from, length) => ({ ph: "X", cat: "user_annotation", name, pid: 1, tid: 1, ts: at(from), dur: length });
  const memory = (ts, Bytes, Addr) => ({
    ph: "i", cat: "cpu_instant_event", name: "[memory]", pid: 1, tid: 1, ts: at(ts), s: "t",
    args: { "Device Type": 1, "Device Id": 0, Addr, Bytes, "Total Allocated": 4096, "Total Reserved": 8192 },
  });
  const steps = [0, 1, 2].map((step) => range(step === 1 ? HOSTILE : `step ${step}`, 100_000 + step * 200_000, 150_000));
  const many = Array.from({ length: short }, (_, number) => range("short", 700_000 + number * 10, 5));
  const events = [memory(0, 4096, 4096), memory(900_000, -4096, 4096), range("epoch", 50_000, 650_000), ...steps, ...many];
  return JSON.stringify({ schemaVersion: 1, displayTimeUnit: "ms", baseTimeNanoseconds: 0, traceEvents: events });
}

const lane = "#ranges canvas";
const description = "#ranges .description";

/** Moves the pointer to a share of the first timeline, in a row of the lane. */
async function pointAtRange(page, share, row) {
  const over = await page.locator("#chart-0 .u-over").boundingBox();
  await page.locator(lane).scrollIntoViewIfNeeded();
  const box = await page.locator(lane).boundingBox();
  await page.mouse.move(over.x + over.width * share, box.y + row * 20 + 10);
}

test("ranges are nested under the timeline, with names and durations", async ({ page, workdir }) => {
  await open(page, workdir.report(workdir.write("ranges.json", profile())));
  const { ranges, span } = await documentOf(page);
  expect(ranges.starts.length).toBe(4);
  expect(span).toBe(900_000_000);
  await pointAtRange(page, 0.07, 0);
  await expect(page.locator(description)).toHaveText("epoch: 650.0 ms, from +0.05s to +0.7s");
  await pointAtRange(page, 0.15, 1);
  await expect(page.locator(description)).toHaveText("step 0: 150.0 ms, from +0.1s to +0.25s");
  await pointAtRange(page, 0.29, 1);
  await expect(page.locator(description)).toHaveText("");
  await pointAtRange(page, 0.35, 1);
  await expect(page.locator(description)).toContainText("step <img src=x onerror=alert(1)>");
  expect(await page.locator("#ranges img").count()).toBe(0);
  expect(await page.locator("#ranges").textContent()).not.toContain("\u202e");
});

test("the keyboard moves through ranges and zooms to one", async ({ page, workdir }) => {
  await open(page, workdir.report(workdir.write("ranges.json", profile())));
  await page.locator(lane).focus();
  for (const name of ["epoch", "step 0", "step <img"]) {
    await page.keyboard.press("ArrowRight");
    await expect(page.locator(description)).toContainText(name);
  }
  await page.keyboard.press("Enter");
  // The lane shows what the timeline shows.
  await pointAtRange(page, 0.5, 1);
  await expect(page.locator(description)).toContainText("step <img");
  await pointAtRange(page, 0.01, 1);
  await expect(page.locator(description)).toHaveText("");
});

test("of many ranges the longest are drawn", async ({ page, workdir }) => {
  await open(page, workdir.report(workdir.write("many.json", profile(3000))));
  const { ranges } = await documentOf(page);
  expect(ranges.starts.length).toBe(2000);
  await expect(page.locator("#ranges")).toContainText("1,004 ranges that are shorter or nested deeper are left out.");
  await pointAtRange(page, 0.07, 0);
  await expect(page.locator(description)).toContainText("epoch: 650.0 ms");
});
