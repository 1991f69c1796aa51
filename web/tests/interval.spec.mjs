// Intervals: allocations and frees between two instants are those that `floodmark stats` counts.

import { readFileSync } from "node:fs";
import { expect, fixture, matchesGolden, open, pick, rowsOf, serving, test as base, waves } from "./fixtures.mjs";

const test = serving(base);
const NSYS = fixture("nsys/small_2025.3.sqlite");

/** Returns a log in which most blocks are allocated and freed at the same time. */
function shortLived() {
  const lines = ["Thread,Time,Action,Pointer,Size,Stream"];
  const stay = [];
  for (let at = 0; at < 900; at++) {
    const time = `10:00:${String(Math.floor(at / 100)).padStart(2, "0")}.${String(at % 100).padStart(2, "0")}0000`;
    const line = (action, block, size) => lines.push(`7,${time},${action},0x${((block + 1) << 20).toString(16)},${size},0x0`);
    line("allocate", at, 4096);
    if (at % 9 === 0) stay.push(at);
    else line("free", at, 4096);
    if (stay.length > 12) line("free", stay.shift(), 4096);
    line("allocate", 5000, 1 << 16);
    line("free", 5000, 1 << 16);
  }
  return `${lines.join("\n")}\n`;
}

const inputs = {
  "an RMM log": (workdir) => workdir.write("rmm_log.dev0.csv", waves()),
  "a long RMM log": (workdir) => workdir.write("long_log.dev0.csv", waves(60_000)),
  "short-lived blocks": (workdir) => workdir.write("short_lived.csv", shortLived()),
  "a Nsight Systems export": () => NSYS,
  "a PyTorch snapshot": () => fixture("torch/snapshot_torch2.11.pickle.gz"),
};

/** Asserts that the page shows what the command counts. Retries, because the address is updated with a delay. */
async function agrees(page, workdir, input) {
  await expect(async () => expect(await shown(page)).toEqual(await counted(page, workdir, input))).toPass({ timeout: 60_000 });
}

/** Returns what the command counts after A and up to B. */
async function counted(page, workdir, input) {
  await expect.poll(() => new URL(page.url()).hash).toMatch(/at=[\d.]+.*with=[\d.]+/);
  const [at, other] = ["at", "with"].map((key) => Math.round(Number(new URLSearchParams(new URL(page.url()).hash.slice(1)).get(key)) * 1e9));
  const [from, to] = [Math.min(at, other), Math.max(at, other)];
  // The command refuses a window that ends before it begins.
  if (from === to) return { allocated: [0, 0], freed: [0, 0] };
  const stats = workdir.json("stats", input, "--from", `+${from + 1}ns`, "--to", `+${to}ns`);
  return {
    allocated: [stats.allocations, stats.total_bytes],
    freed: [stats.frees + stats.replaced_blocks, stats.carried_bytes + stats.total_bytes - stats.live_bytes],
  };
}

const number = (text) => Number(text.replace(/\D/g, ""));

/** Returns the sums of the table, after comparing their blocks with the summary. */
async function shown(page) {
  const isShown = await page.locator("#interval").evaluate(({ hidden }) => !hidden);
  const rows = isShown ? await rowsOf(page.locator("#interval")) : [];
  const sum = (column) => rows.reduce((sum, row) => sum + number(row[column]), 0);
  const summary = /^In between: allocated (.*?)(?: \(.* still live\))?, freed (.*)\.$/.exec(await page.locator("#interval-summary").textContent());
  const blocks = (text) => (text === "nothing" ? 0 : number(/ in ([\d,]+) blocks?$/.exec(text)[1]));
  expect(summary.slice(1).map(blocks)).toEqual([sum(2), sum(4)]);
  return { allocated: [sum(2), sum(1)], freed: [sum(4), sum(3)] };
}

for (const [what, input] of Object.entries(inputs)) {
  test(`allocations and frees in intervals of ${what} are those of stats`, async ({ page, workdir }) => {
    test.slow();
    const file = input(workdir);
    await open(page, workdir.report(file));
    await expect(page.locator("#interval-summary")).toBeHidden();
    await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
    await page.getByRole("button", { name: "Compare ends of view" }).click();
    await agrees(page, workdir, file);
    await page.locator("#chart-0").getByRole("button", { name: "Show all" }).click();
    for (const [from, to] of [[0.1, 0.35], [0.9, 0.4]]) {
      await pick(page, from);
      await page.getByRole("button", { name: "Stop comparing" }).click();
      await pick(page, to, ["Shift"]);
      await agrees(page, workdir, file);
    }
  });
}

test("blocks still live are those live at B but not at A", async ({ page, workdir }) => {
  await open(page, workdir.report(inputs["short-lived blocks"](workdir)));
  await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
  await page.getByRole("button", { name: "Compare ends of view" }).click();
  const blocks = (await rowsOf(page.locator("#live"))).length;
  expect(blocks).toBeGreaterThan(5);
  await expect(page.locator("#interval-summary")).toHaveText(new RegExp(` in ${blocks} blocks still live\\), freed `));
  // Far more were allocated than stayed.
  expect((await shown(page)).allocated[0]).toBeGreaterThan(500);
  const title = page.locator("#interval h3");
  await expect(title).toHaveText("Allocated and freed from A to B");
  await pick(page, 0.9);
  await page.getByRole("button", { name: "Stop comparing" }).click();
  await pick(page, 0.2, ["Shift"]);
  await expect(title).toHaveText("Allocated and freed from B to A");
  await page.getByRole("button", { name: "Stop comparing" }).click();
  await expect(page.locator("#interval-summary")).toBeHidden();
  await expect(page.locator("#interval")).toBeHidden();
});

test("a report without cumulative allocations refers to serve", async ({ page, workdir }) => {
  const whole = readFileSync(workdir.report(NSYS), "utf8");
  const without = whole.replace(/"cumulative":\{("\w+":\{[^{}]*\},?)+\}/, '"cumulative":null');
  expect(without).not.toBe(whole);
  await open(page, workdir.write("without.html", without));
  await page.getByRole("button", { name: "Compare ends of view" }).click();
  await expect(page.locator("#interval-summary")).toHaveText(/^This report omits .*'floodmark serve' shows them\.$/);
  await expect(page.locator("#interval")).toBeHidden();
  await expect(page.locator("#live tbody tr")).toHaveCount(4);
});

test("appearance of an interval", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  await page.getByRole("button", { name: "Compare ends of view" }).click();
  await matchesGolden(page, "interval", page.locator("#panel-sites"));
});

test.describe("served", () => {
  test.use({ reachable: /^(http:\/\/127\.0\.0\.1:\d+\/|data:|blob:)/ });
  test("a served interval is exactly the visible range", async ({ page, workdir, serve }) => {
    const file = inputs["a long RMM log"](workdir);
    await page.goto((await serve(file)).url);
    await expect(page.locator("html")).toHaveAttribute("data-ready", "true");
    for (let times = 0; times < 2; times++) {
      await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
      await page.getByRole("button", { name: "Compare ends of view" }).click();
      await expect(page.locator("#instant")).toHaveText(/^From A at /);
      await agrees(page, workdir, file);
      const values = new URLSearchParams(new URL(page.url()).hash.slice(1));
      for (const [one, other] of [["with", "from"], ["at", "to"]]) {
        expect(Math.abs(Number(values.get(one)) - Number(values.get(other)))).toBeLessThan(2e-9);
      }
    }
  });
});
