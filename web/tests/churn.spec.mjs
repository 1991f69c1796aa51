// Spans: what a page says was allocated and freed in a span is what the command counts there.

import { readFileSync } from "node:fs";
import { expect, documentOf, fixture, looks, open, pick, rowsOf, serving, test as base, waves } from "./reader.mjs";

const test = serving(base);
const NSYS = fixture("nsys/small_2025.3.sqlite");

/** A log in which most blocks come and go within one instant. */
function flickers() {
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
  "a log of RMM": (desk) => desk.write("rmm_log.dev0.csv", waves()),
  "a long log of RMM": (desk) => desk.write("long_log.dev0.csv", waves(60_000)),
  "blocks that come and go within an instant": (desk) => desk.write("flickers.csv", flickers()),
  "an export of Nsight Systems": () => NSYS,
  "a snapshot of torch": () => fixture("torch/snapshot_torch2.11.pickle.gz"),
};

/** The page tells what the command counts. The address follows a little later than what is shown. */
async function agrees(page, desk, input) {
  await expect(async () => expect(await shown(page)).toEqual(await counted(page, desk, input))).toPass({ timeout: 60_000 });
}

/** What the command counts after A and up to B. */
async function counted(page, desk, input) {
  await expect.poll(() => new URL(page.url()).hash).toMatch(/at=[\d.]+.*with=[\d.]+/);
  const { first } = (await documentOf(page)).moments;
  const [at, other] = ["at", "with"].map((key) => Math.round(Number(new URLSearchParams(new URL(page.url()).hash.slice(1)).get(key)) * 1e9) - first);
  const [from, to] = [Math.min(at, other), Math.max(at, other)];
  const told = desk.json("stats", input, "--from", `+${from + 1}ns`, "--to", `+${to}ns`);
  return {
    allocated: [told.allocations, told.total_bytes],
    freed: [told.frees + told.replaced_blocks, told.carried_bytes + told.total_bytes - told.live_bytes],
  };
}

const number = (text) => Number(text.replace(/\D/g, ""));

/** Sums of the table, and how many blocks the sentence speaks of. */
async function shown(page) {
  const rows = (await page.locator("#between:visible").count()) ? await rowsOf(page.locator("#between")) : [];
  const sum = (column) => rows.reduce((sum, row) => sum + number(row[column]), 0);
  const [, came, went] = /^In between (nothing|[\d,]+ block).* (?:was|were) allocated and (nothing|[\d,]+ block).* freed/.exec(await page.locator("#churned").textContent());
  expect([number(came), number(went)]).toEqual([sum(2), sum(4)]);
  return { allocated: [sum(2), sum(1)], freed: [sum(4), sum(3)] };
}

for (const [what, input] of Object.entries(inputs)) {
  test(`what came and went in spans of ${what} is what stats counts`, async ({ page, desk }) => {
    test.slow();
    const file = input(desk);
    await open(page, desk.report(file));
    await expect(page.locator("#churned")).toBeHidden();
    await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
    await page.getByRole("button", { name: "Span in view" }).click();
    await agrees(page, desk, file);
    await page.locator("#chart-0").getByRole("button", { name: "Show all" }).click();
    for (const [from, to] of [[0.1, 0.35], [0.9, 0.4]]) {
      await pick(page, from);
      await page.getByRole("button", { name: "Stop comparing" }).click();
      await pick(page, to, ["Shift"]);
      await agrees(page, desk, file);
    }
  });
}

test("what came and stayed is what is live at B and was not at A", async ({ page, desk }) => {
  await open(page, desk.report(inputs["blocks that come and go within an instant"](desk)));
  await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
  await page.getByRole("button", { name: "Span in view" }).click();
  const blocks = (await rowsOf(page.locator("#live"))).length;
  expect(blocks).toBeGreaterThan(5);
  await expect(page.locator("#churned")).toHaveText(new RegExp(`; ${blocks} blocks of .* came and stayed\\.$`));
  // Far more came than stayed.
  expect((await shown(page)).allocated[0]).toBeGreaterThan(500);
  const title = page.locator("#between h3");
  await expect(title).toHaveText("Allocated and freed from A to B");
  await pick(page, 0.9);
  await page.getByRole("button", { name: "Stop comparing" }).click();
  await pick(page, 0.2, ["Shift"]);
  await expect(title).toHaveText("Allocated and freed from B to A");
  await page.getByRole("button", { name: "Stop comparing" }).click();
  await expect(page.locator("#churned")).toBeHidden();
  await expect(page.locator("#between")).toBeHidden();
});

test("a report without counts says what it cannot tell", async ({ page, desk }) => {
  const whole = readFileSync(desk.report(NSYS), "utf8");
  const without = whole.replace(/"came":\{("\w+":\{[^{}]*\},?)+\}/, '"came":null');
  expect(without).not.toBe(whole);
  await open(page, desk.write("without.html", without));
  await page.getByRole("button", { name: "Span in view" }).click();
  await expect(page.locator("#churned")).toHaveText(/is not kept here.*'floodmark serve' tells\.$/);
  await expect(page.locator("#between")).toBeHidden();
  await expect(page.locator("#live tbody tr")).toHaveCount(4);
});

test("how a span looks", async ({ page, desk }) => {
  await open(page, desk.report(NSYS));
  await page.getByRole("button", { name: "Span in view" }).click();
  await looks(page, "span", page.locator("#travel"));
});

test.describe("served", () => {
  test.use({ reachable: /^(http:\/\/127\.0\.0\.1:\d+\/|data:|blob:)/ });
  test("a served span is exactly the one in sight", async ({ page, desk, serve }) => {
    const file = inputs["a long log of RMM"](desk);
    await page.goto((await serve(file)).url);
    await expect(page.locator("html")).toHaveAttribute("data-ready", "true");
    for (let times = 0; times < 2; times++) {
      await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
      await page.getByRole("button", { name: "Span in view" }).click();
      await expect(page.locator("#instant")).toHaveText(/^From A at /);
      await agrees(page, desk, file);
      const values = new URLSearchParams(new URL(page.url()).hash.slice(1));
      for (const [one, other] of [["with", "from"], ["at", "to"]]) {
        expect(Math.abs(Number(values.get(one)) - Number(values.get(other)))).toBeLessThan(2e-9);
      }
    }
  });
});
