// The icicle graph: sums of searches and of both orientations are those of the command's blocks.

import { expect, fixture, matchesGolden, open, pick, rowsOf, test, waves } from "./fixtures.mjs";

const NSYS = fixture("nsys/small_2025.3.sqlite");
const TORCH = fixture("torch/snapshot_torch2.11.pickle.gz");
const EVERY = "stack with every frame";
const inputs = {
  "a Nsight Systems export": { input: NSYS, words: ["PEAK", "main", "libc", "cuda", "[/", "no such call"] },
  "a PyTorch snapshot": { input: TORCH, words: ["forward", ".py", "python", "no such call"] },
};

const exact = (bytes) => `${bytes.toLocaleString("en-US")} bytes`;
const sum = (blocks) => blocks.reduce((sum, { bytes }) => sum + bytes, 0);
const search = (page) => page.getByRole("searchbox", { name: "Search calls" });
const invert = (page) => page.getByRole("button", { name: "Invert" });

/** Cuts a text as the page does. */
const cut = (text) => ([...text].length > 600 ? `${[...text].slice(0, 600).join("")}…` : text);

/** Returns the blocks of the selected instant with their stacks, from the command. */
async function blocksOf(page, workdir, input) {
  const command = page.locator("#travel .note code");
  const at = (await command.count()) === 0 ? [] : ["--at", /--at (\S+)/.exec(await command.textContent())[1]];
  const { blocks } = workdir.json("watermark", input, ...at);
  return blocks.map(({ bytes, stack }) => ({ bytes, stack: stack.map(cut) }));
}

/** Returns the rows of the graph's table: depth, text and bytes. */
async function calls(page) {
  const table = page.locator("#panel-flame details");
  if (!(await table.evaluate(({ open }) => open))) await table.locator("summary").click();
  return (await rowsOf(table)).map(([depth, text, bytes]) => ({ depth: Number(depth), text, bytes: Number(bytes.replace(/\D/g, "")) }));
}

/** Returns the bytes of every path prefix. */
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

/** Returns the same for rows, whose depths define the paths. */
function shown(rows) {
  const path = [];
  const sums = rows.map(({ depth, text, bytes }) => {
    path.splice(depth - 1, Infinity, text);
    return `${path.join("\n")} ${bytes}`;
  });
  return sums.sort();
}

/** Asserts that rows are these sums, except for blocks without stacks. Prints at most three differences. */
function same(rows, sums) {
  const there = new Set(shown(rows));
  expect(sums.filter((sum) => !there.has(sum)).slice(0, 3)).toEqual([]);
  const wanted = new Set(sums);
  const stacks = new Set(sums.map((sum) => sum.split("\n")[0].replace(/ \d+$/, "")));
  const others = shown(rows).filter((row) => !wanted.has(row) && stacks.has(row.split("\n")[0].replace(/ \d+$/, "")));
  expect(others.slice(0, 3)).toEqual([]);
}

for (const [what, { input, words }] of Object.entries(inputs)) {
  test(`a search in ${what} counts a block once, however many of its frames match`, async ({ page, workdir }) => {
    await open(page, workdir.report(input));
    const ways = await page.locator("#grouping option").evaluateAll((options) => options.map(({ value }) => value));
    await page.locator("#grouping").selectOption(ways.includes(EVERY) ? EVERY : "stack");
    for (const share of [null, 0.3, 0.8]) {
      if (share !== null) await pick(page, share);
      const blocks = await blocksOf(page, workdir, input);
      for (const word of words) {
        await search(page).fill(word);
        const matching = blocks.filter(({ stack }) => stack.some((frame) => frame.toLowerCase().includes(word.toLowerCase())));
        if (sum(matching) === 0) await expect(page.locator("#found")).toHaveText("No call matches.");
        else {
          await expect(page.locator("#found")).toHaveAttribute("title", exact(sum(matching)));
          const percent = (sum(matching) / sum(blocks)) * 100;
          const wanted = percent < 0.1 ? "<0.1 %" : `${percent.toFixed(percent < 9.95 ? 1 : 0)} %`;
          await expect(page.locator("#found")).toContainText(`, ${wanted} of the total. `);
        }
        // The inverted graph has the same sum.
        const before = await page.locator("#found").getAttribute("title");
        await invert(page).click();
        await expect(page.locator("#found")).toHaveAttribute("title", before ?? "");
        await invert(page).click();
      }
    }
    await search(page).fill("");
    await expect(page.locator("#found")).toBeHidden();
  });

  test(`inverted, ${what} is summed by innermost frames`, async ({ page, workdir }) => {
    await open(page, workdir.report(input));
    const ways = await page.locator("#grouping option").evaluateAll((options) => options.map(({ value }) => value));
    await page.locator("#grouping").selectOption(ways.includes(EVERY) ? EVERY : "stack");
    for (const share of [null, 0.6]) {
      if (share !== null) await pick(page, share);
      const blocks = (await blocksOf(page, workdir, input)).filter(({ stack, bytes }) => stack.length > 0 && bytes > 0);
      expect(blocks.length).toBeGreaterThan(0);
      const paths = (order) => blocks.map(({ stack, bytes }) => ({ path: order(stack), bytes }));
      const roots = (rows) => rows.filter(({ depth }) => depth === 1).reduce((all, { bytes }) => all + bytes, 0);
      const normal = await calls(page);
      same(normal, added(paths((stack) => [...stack].reverse())));
      await invert(page).click();
      await expect(invert(page)).toHaveAttribute("aria-pressed", "true");
      const inverted = await calls(page);
      same(inverted, added(paths((stack) => stack)));
      expect(roots(inverted)).toBe(roots(normal));
      await invert(page).click();
    }
  });
}

test("search and orientation are kept when another instant is selected", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  await search(page).fill("main");
  await invert(page).click();
  await pick(page, 0.4);
  await expect(search(page)).toHaveValue("main");
  await expect(invert(page)).toHaveAttribute("aria-pressed", "true");
  await expect(page.locator("#found")).toBeVisible();
  await page.getByRole("button", { name: "Compare from here" }).click();
  await page.getByRole("button", { name: "Go to peak" }).click();
  await expect(page.locator("#found")).toHaveText(/ at B, (\+|−|no change).* since A\./);
});

test("a list of sites cannot be inverted", async ({ page, workdir }) => {
  await open(page, workdir.report(TORCH));
  await page.locator("#grouping").selectOption("site");
  await expect(invert(page)).toBeHidden();
  await page.locator("#grouping").selectOption("stack");
  await expect(invert(page)).toBeVisible();
});

test("search and zoom work by keyboard", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  await page.locator("#grouping").focus();
  await page.keyboard.press("Tab");
  await expect(invert(page)).toBeFocused();
  await page.keyboard.press("Space");
  await expect(invert(page)).toHaveAttribute("aria-pressed", "true");
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

test("blocks without stacks can be inverted", async ({ page, workdir }) => {
  const input = workdir.write("rmm_log.dev0.csv", waves());
  await open(page, workdir.report(input));
  const { blocks } = workdir.json("watermark", input);
  await invert(page).click();
  const rows = await calls(page);
  expect(rows.filter(({ depth }) => depth === 1).reduce((all, { bytes }) => all + bytes, 0)).toBe(sum(blocks));
});

test("appearance of a search", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  await search(page).fill("peak");
  await search(page).blur();
  await matchesGolden(page, "icicle-search", page.locator(".icicle"));
  await search(page).fill("");
  await invert(page).click();
  await matchesGolden(page, "icicle-inverted", page.locator(".icicle"));
});

test.describe("dark", () => {
  test.use({ colorScheme: "dark" });
  test("appearance of a search", async ({ page, workdir }) => {
    await open(page, workdir.report(NSYS));
    await search(page).fill("peak");
    await search(page).blur();
    await matchesGolden(page, "dark-icicle-search", page.locator(".icicle"));
  });
});
