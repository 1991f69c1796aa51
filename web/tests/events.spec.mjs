// Reports of allocations: tables, icicle graph and timeline.

import { pathToFileURL } from "node:url";
import { documentOf, expect, fixture, open, pointAt, reveal, test, waves } from "./fixtures.mjs";

const TORCH = fixture("torch/snapshot_torch2.11.pickle.gz");
const inputs = { "an RMM log": (workdir) => workdir.write("rmm_log.dev0.csv", waves()), "a PyTorch snapshot": () => TORCH };

for (const [what, input] of Object.entries(inputs)) {
  test.describe(what, () => {
    test.beforeEach(async ({ page, workdir }) => open(page, workdir.report(input(workdir))));

    test("the peak is that of stats", async ({ page, workdir }) => {
      await expect(page.locator(".lead")).toHaveText(/^Memory rose to /);
      const stats = workdir.json("stats", input(workdir));
      expect((await documentOf(page)).charts[0].peak.bytes).toBe(stats.peak_bytes);
    });

    test("numbers sort descending first, then ascending", async ({ page }) => {
      const table = page.locator("#sizes");
      await reveal(table);
      const allocations = table.locator("th button", { hasText: "allocations" });
      const column = async () => {
        const cells = await table.locator("tbody tr td:nth-child(3)").allTextContents();
        return cells.map((text) => Number(text.replaceAll(",", "")));
      };
      await allocations.click();
      const down = await column();
      expect(down).toEqual([...down].sort((a, b) => b - a));
      await allocations.click();
      const up = await column();
      expect(up).toEqual([...up].sort((a, b) => a - b));
      expect(up[0]).toBeLessThan(down[0]);
    });

    test("a search filters a table", async ({ page }) => {
      const rows = page.locator("#live tbody tr");
      await reveal(page.locator("#live"));
      const before = await rows.count();
      const wanted = await rows.nth(1).locator("td").nth(1).textContent();
      await page.locator("#live input").fill(wanted);
      expect(await rows.count()).toBeLessThan(before);
      for (const text of await rows.allTextContents()) expect(text).toContain(wanted);
      await page.locator("#live input").fill("no such thing");
      await expect(rows).toHaveCount(0);
    });

    test("keys and clicks zoom the icicle graph in and out", async ({ page }) => {
      const canvas = page.locator(".icicle canvas");
      const crumbs = page.locator(".crumbs button");
      await canvas.scrollIntoViewIfNeeded();
      await canvas.focus();
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Enter");
      await expect(crumbs).toHaveCount(2);
      await page.keyboard.press("Escape");
      await expect(crumbs).toHaveCount(1);
      await canvas.click({ position: { x: 30, y: 30 } });
      await expect(crumbs).toHaveCount(2);
      await page.locator("#panel-flame summary").click();
      await expect(page.locator("#panel-flame details tbody tr").first()).toBeVisible();
    });

    test("the legend follows the pointer, and zooming is reversible", async ({ page }) => {
      const over = page.locator("#chart-0 .u-over");
      const left = async () => {
        await pointAt(page, "#chart-0", 0.05);
        return Number(/\+([\d.]+) s/.exec(await pointAt(page, "#chart-0", 0))[1]);
      };
      expect(await pointAt(page, "#chart-0", 0.3)).toMatch(/\+\d.* s/);
      await page.getByRole("button", { name: "Show all" }).first().click();
      const begin = await left();
      await page.getByRole("button", { name: "Zoom to peak" }).first().click();
      expect(await left()).toBeGreaterThan(begin);
      await page.getByRole("button", { name: "Show all" }).first().click();
      expect(await left()).toBe(begin);
      await over.focus();
      await page.keyboard.press("+");
      expect(await left()).toBeGreaterThan(begin);
      await page.keyboard.press("0");
      expect(await left()).toBe(begin);
    });
  });
}

test("the legend shows the time where a line is flat", async ({ page, workdir }) => {
  const line = (second, block) => `1,10:00:${second}.000000,allocate,0x${block}00,4096,0x0\n`;
  const log = `Thread,Time,Action,Pointer,Size,Stream\n${line("00", 1)}${line("10", 2)}`;
  await open(page, workdir.report(workdir.write("flat.csv", log)));
  for (const share of [0.2, 0.5, 0.8]) {
    const legend = await pointAt(page, "#chart-0", share);
    expect(Math.abs(Number(/\+([\d.]+) s/.exec(legend)[1]) - 10 * share), legend).toBeLessThan(0.1);
    expect(legend).toContain("4.00 KiB");
  }
});

test("the label of a peak is drawn only while the peak is visible", async ({ page, workdir }) => {
  const line = (at, action, block) => `1,10:00:${String(Math.floor(at / 10)).padStart(2, "0")}.${at % 10}00000,${action},0x${(block + 1).toString(16)}000,4096,0x0\n`;
  const rise = Array.from({ length: 100 }, (_, at) => line(at, "allocate", at));
  const fall = Array.from({ length: 100 }, (_, at) => line(100 + at, "free", at));
  const file = workdir.report(workdir.write("summit.csv", `Thread,Time,Action,Pointer,Size,Stream\n${[...rise, ...fall].join("")}`));
  await open(page, file);
  const { time } = (await documentOf(page)).charts[0].peak;
  /** Counts the pixels of the timeline in the color of the peak. */
  const drawn = () =>
    page.locator("#chart-0 canvas").evaluate((canvas) => {
      const probe = document.body.appendChild(document.createElement("i"));
      probe.style.color = "var(--bad)";
      const wanted = getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).map(Number);
      probe.remove();
      // A copy, because browsers warn about canvases that are read repeatedly.
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
      copy.drawImage(canvas, 0, 0);
      const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
      let count = 0;
      for (let at = 0; at < data.length; at += 4) count += wanted.every((part, by) => Math.abs(part - data[at + by]) < 16) ? 1 : 0;
      return count;
    });
  expect(await drawn()).toBeGreaterThan(20);
  // The peak is about forty pixels right of the visible range.
  const end = (time / 1e9) * 0.965;
  await page.goto(`${pathToFileURL(file).href}#from=0&to=${end.toFixed(9)}`);
  await expect.poll(async () => Number(/\+([\d.]+) s/.exec(await pointAt(page, "#chart-0", 1))[1])).toBeLessThan(end + 0.1);
  expect(await drawn()).toBe(0);
});

test("a block expands to its stack and collapses again", async ({ page, workdir }) => {
  await open(page, workdir.report(TORCH));
  const block = page.locator("#live .open").first();
  await reveal(page.locator("#live"));
  await block.click();
  expect(await page.locator("#live .detail .stack li").count()).toBeGreaterThan(1);
  await block.click();
  await expect(page.locator("#live .detail")).toHaveCount(0);
});

test("a page names its input", async ({ page, workdir }) => {
  await open(page, workdir.report(TORCH));
  await expect(page.locator("h1")).toHaveText("snapshot_torch2.11.pickle.gz");
  await expect(page).toHaveTitle(/snapshot_torch2\.11/);
});
