// The icicle: what a search finds and what stands on top are what the blocks of the command add up to.

import { expect, fixture, looks, open, pick, rowsOf, test, waves } from "./reader.mjs";

const NSYS = fixture("nsys/small_2025.3.sqlite");
const TORCH = fixture("torch/snapshot_torch2.11.pickle.gz");
const EVERY = "stack with every frame";
const inputs = {
  "an export of Nsight Systems": { input: NSYS, words: ["PEAK", "main", "libc", "cuda", "[/", "no such call"] },
  "a snapshot of torch": { input: TORCH, words: ["forward", ".py", "python", "no such call"] },
};

const exact = (bytes) => `${bytes.toLocaleString("en-US")} bytes`;
const sum = (blocks) => blocks.reduce((sum, { bytes }) => sum + bytes, 0);
const search = (page) => page.getByRole("searchbox", { name: "Search calls" });
const turn = (page) => page.getByRole("button", { name: "Innermost on top" });

/** A page cuts long texts. */
const cut = (text) => ([...text].length > 600 ? `${[...text].slice(0, 600).join("")}…` : text);

/** Blocks of the instant that is shown, with their stacks. */
async function blocksOf(page, desk, input) {
  const command = page.locator("#travel .note code");
  const at = (await command.count()) === 0 ? [] : ["--at", /--at (\S+)/.exec(await command.textContent())[1]];
  const { blocks } = desk.json("watermark", input, ...at);
  return blocks.map(({ bytes, stack }) => ({ bytes, stack: stack.map(cut) }));
}

/** Rows of the icicle's table: depth, text and bytes. */
async function calls(page) {
  const table = page.locator("#travel details");
  if (!(await table.evaluate(({ open }) => open))) await table.locator("summary").click();
  return (await rowsOf(table)).map(([depth, text, bytes]) => ({ depth: Number(depth), text, bytes: Number(bytes.replace(/\D/g, "")) }));
}

/** Bytes below every path, outermost text first. */
function added(paths) {
  const sums = new Map();
  for (const { path, bytes } of paths) {
    for (let depth = 1; depth <= path.length; depth++) {
      const key = path.slice(0, depth).join("\n");
      sums.set(key, (sums.get(key) ?? 0) + bytes);
    }
  }
  return [...sums].map(([key, bytes]) => `${key} ${bytes}`).sort();
}

/** The same of rows whose depths tell what is below what. */
function shown(rows) {
  const path = [];
  const sums = rows.map(({ depth, text, bytes }) => {
    path.splice(depth - 1, Infinity, text);
    return `${path.join("\n")} ${bytes}`;
  });
  return sums.sort();
}

/** Asserts that rows are these sums, beside those of blocks without stacks; a list of all would fill a screen. */
function same(rows, sums) {
  const there = new Set(shown(rows));
  expect(sums.filter((sum) => !there.has(sum)).slice(0, 3)).toEqual([]);
  const wanted = new Set(sums);
  const stacks = new Set(sums.map((sum) => sum.split("\n")[0].replace(/ \d+$/, "")));
  const others = shown(rows).filter((row) => !wanted.has(row) && stacks.has(row.split("\n")[0].replace(/ \d+$/, "")));
  expect(others.slice(0, 3)).toEqual([]);
}

for (const [what, { input, words }] of Object.entries(inputs)) {
  test(`a search of ${what} counts a block once, however many of its frames match`, async ({ page, desk }) => {
    await open(page, desk.report(input));
    const ways = await page.locator("#way option").evaluateAll((options) => options.map(({ value }) => value));
    await page.locator("#way").selectOption(ways.includes(EVERY) ? EVERY : "stack");
    for (const share of [null, 0.3, 0.8]) {
      if (share !== null) await pick(page, share);
      const blocks = await blocksOf(page, desk, input);
      for (const word of words) {
        await search(page).fill(word);
        const matching = blocks.filter(({ stack }) => stack.some((frame) => frame.toLowerCase().includes(word.toLowerCase())));
        if (sum(matching) === 0) await expect(page.locator("#found")).toHaveText("No call matches.");
        else {
          await expect(page.locator("#found")).toHaveAttribute("title", exact(sum(matching)));
          const percent = (sum(matching) / sum(blocks)) * 100;
          const wanted = percent < 0.1 ? "<0.1 %" : `${percent.toFixed(percent < 9.95 ? 1 : 0)} %`;
          await expect(page.locator("#found")).toContainText(`, ${wanted} of all. `);
        }
        // From inside it is the same.
        const before = await page.locator("#found").getAttribute("title");
        await turn(page).click();
        await expect(page.locator("#found")).toHaveAttribute("title", before ?? "");
        await turn(page).click();
      }
    }
    await search(page).fill("");
    await expect(page.locator("#found")).toBeHidden();
  });

  test(`from inside, ${what} adds up by innermost frames`, async ({ page, desk }) => {
    await open(page, desk.report(input));
    const ways = await page.locator("#way option").evaluateAll((options) => options.map(({ value }) => value));
    await page.locator("#way").selectOption(ways.includes(EVERY) ? EVERY : "stack");
    for (const share of [null, 0.6]) {
      if (share !== null) await pick(page, share);
      const blocks = (await blocksOf(page, desk, input)).filter(({ stack, bytes }) => stack.length > 0 && bytes > 0);
      expect(blocks.length).toBeGreaterThan(0);
      const paths = (order) => blocks.map(({ stack, bytes }) => ({ path: order(stack), bytes }));
      const roots = (rows) => rows.filter(({ depth }) => depth === 1).reduce((all, { bytes }) => all + bytes, 0);
      const outside = await calls(page);
      same(outside, added(paths((stack) => [...stack].reverse())));
      await turn(page).click();
      await expect(turn(page)).toHaveAttribute("aria-pressed", "true");
      const inside = await calls(page);
      same(inside, added(paths((stack) => stack)));
      expect(roots(inside)).toBe(roots(outside));
      await turn(page).click();
    }
  });
}

test("a search and what stands on top stay from instant to instant", async ({ page, desk }) => {
  await open(page, desk.report(NSYS));
  await search(page).fill("main");
  await turn(page).click();
  await pick(page, 0.4);
  await expect(search(page)).toHaveValue("main");
  await expect(turn(page)).toHaveAttribute("aria-pressed", "true");
  await expect(page.locator("#found")).toBeVisible();
  await page.getByRole("button", { name: "Compare from here" }).click();
  await page.getByRole("button", { name: "At the peak" }).click();
  await expect(page.locator("#found")).toHaveText(/ at B, (\+|−|no change).* since A\./);
});

test("a list of sites has nothing to turn around", async ({ page, desk }) => {
  await open(page, desk.report(TORCH));
  await page.locator("#way").selectOption("site");
  await expect(turn(page)).toBeHidden();
  await page.locator("#way").selectOption("stack");
  await expect(turn(page)).toBeVisible();
});

test("by keyboard alone one finds a call, enters it and comes back", async ({ page, desk }) => {
  await open(page, desk.report(NSYS));
  await page.locator("#way").focus();
  await page.keyboard.press("Tab");
  await expect(turn(page)).toBeFocused();
  await page.keyboard.press("Space");
  await expect(turn(page)).toHaveAttribute("aria-pressed", "true");
  await page.keyboard.press("Space");
  await page.keyboard.press("Tab");
  await expect(search(page)).toBeFocused();
  await page.keyboard.type("peak");
  await page.keyboard.press("Enter");
  await expect(page.locator(".crumbs [aria-current]")).toContainText("peak");
  await expect(search(page)).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(page.locator("#found")).toBeHidden();
});

test("blocks without stacks are turned around too", async ({ page, desk }) => {
  const input = desk.write("rmm_log.dev0.csv", waves());
  await open(page, desk.report(input));
  const { blocks } = desk.json("watermark", input);
  await turn(page).click();
  const rows = await calls(page);
  expect(rows.filter(({ depth }) => depth === 1).reduce((all, { bytes }) => all + bytes, 0)).toBe(sum(blocks));
});

test("how a search looks", async ({ page, desk }) => {
  await open(page, desk.report(NSYS));
  await search(page).fill("peak");
  await search(page).blur();
  await looks(page, "icicle-search", page.locator(".icicle"));
  await search(page).fill("");
  await turn(page).click();
  await looks(page, "icicle-inside", page.locator(".icicle"));
});

test.describe("dark", () => {
  test.use({ colorScheme: "dark" });
  test("how a search looks", async ({ page, desk }) => {
    await open(page, desk.report(NSYS));
    await search(page).fill("peak");
    await search(page).blur();
    await looks(page, "dark-icicle-search", page.locator(".icicle"));
  });
});
