// Links to a view: opening the address of a page shows the same view.

import { pathToFileURL } from "node:url";
import { expect, fixture, legendAt, open, pick, pointAt, reveal, rowsOf, serving, test as base, waves } from "./fixtures.mjs";

const test = serving(base);
const NSYS = fixture("nsys/small_2025.3.sqlite");
const rmm = (workdir) => workdir.write("rmm_log.dev0.csv", waves());

/** Returns everything that depends on the view. */
async function viewOf(page) {
  const text = (place) => page.locator(place).allTextContents();
  return {
    summary: await text("#instant"),
    found: await page.locator("#found:visible").allTextContents(),
    live: await rowsOf(page.locator("#live")),
    held: await rowsOf(page.locator("#held")),
    gone: await page.locator("#gone").evaluate(({ hidden }) => !hidden),
    grouping: await page.locator("#grouping").inputValue(),
    pressed: await text('[aria-pressed="true"]'),
    tabs: await text('[role=tab][aria-selected="true"]'),
    left: await legendAt(page, "#chart-0", 0),
    right: await legendAt(page, "#chart-0", 1),
  };
}

/** Returns the address after it has been updated. */
async function addressOf(page, wanted) {
  await expect.poll(() => new URL(page.url()).hash).toMatch(wanted);
  await page.waitForTimeout(300);
  return page.url();
}

async function openAt(page, url) {
  // Changing only the fragment would not reload the page.
  await page.goto("about:blank");
  await page.goto(url);
  await expect(page.locator("html")).toHaveAttribute("data-ready", "true");
}

test("an untouched page has no fragment", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  await page.waitForTimeout(500);
  expect(new URL(page.url()).hash).toBe("");
});

test("a link restores the selected instant", async ({ page, workdir }) => {
  await open(page, workdir.report(rmm(workdir)));
  const peak = await viewOf(page);
  await pick(page, 0.3);
  const picked = await viewOf(page);
  expect(picked.summary).not.toEqual(peak.summary);
  const url = await addressOf(page, /^#at=\d+(\.\d+)?$/);
  await openAt(page, url);
  expect(await viewOf(page)).toEqual(picked);
  // The peak is the default and needs no fragment.
  await page.getByRole("button", { name: "Go to peak" }).click();
  await addressOf(page, /^$/);
  expect(await viewOf(page)).toEqual(peak);
});

test("a link restores two instants, a range, a grouping, a search and the orientation", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  await page.getByRole("button", { name: "Zoom in" }).first().click();
  await pick(page, 0.2);
  await pick(page, 0.7, ["Shift"]);
  await page.locator("#grouping").selectOption("stack with every frame");
  await page.getByRole("button", { name: "Invert" }).click();
  await page.getByRole("searchbox", { name: "Search calls" }).fill("main");
  const chosen = await viewOf(page);
  expect(chosen.summary[0]).toMatch(/^From A at /);
  const url = await addressOf(page, /^#at=[\d.]+&with=[\d.]+&from=[\d.]+&to=[\d.]+&by=stack\+with\+every\+frame&top=innermost&find=main$/);
  await openAt(page, url);
  expect(await viewOf(page)).toEqual(chosen);
});

test("the peak is encoded by name, because its time may be ambiguous", async ({ page, workdir }) => {
  await open(page, workdir.report(NSYS));
  await page.getByRole("button", { name: "Compare from here" }).click();
  await page.getByRole("button", { name: "Earlier" }).click();
  const compared = await viewOf(page);
  await openAt(page, await addressOf(page, /^#at=[\d.]+&with=peak$/));
  expect(await viewOf(page)).toEqual(compared);
});

test("another fragment in the same page shows another view", async ({ page, workdir }) => {
  const url = pathToFileURL(workdir.report(rmm(workdir))).href;
  await openAt(page, `${url}#at=10&from=5&to=30`);
  const first = await viewOf(page);
  expect(first.left).toMatch(/\+5\.\d* s/);
  await page.goto(`${url}#at=20`);
  await expect(page.locator("#instant")).not.toHaveText(first.summary[0]);
  const second = await viewOf(page);
  await openAt(page, `${url}#at=20`);
  expect(await viewOf(page)).toEqual(second);
});

const invalid = ["at=banana", "at=-3", "at=1e999", "at=99999999", "with=NaN", "from=7&to=2", "from=&to=", "from=99999998&to=99999999", "by=%3Cimg%20src=x%3E", "top=sideways", "%", "at=%E0%A4%A&&&==", "__proto__=1", "no-such-section"];
for (const fragment of invalid) {
  test(`the invalid fragment #${fragment} is ignored`, async ({ page, workdir }) => {
    const file = workdir.report(NSYS);
    await open(page, file);
    const plain = await viewOf(page);
    await openAt(page, `${pathToFileURL(file).href}#${fragment}`);
    expect(await viewOf(page)).toEqual(plain);
  });
}

test("a search in a link is not interpreted as markup", async ({ page, workdir }) => {
  await openAt(page, `${pathToFileURL(workdir.report(NSYS)).href}#find=${encodeURIComponent("<img src=x onerror=alert(1)>")}`);
  await expect(page.locator("#found")).toHaveText("No call matches.");
  expect(await page.locator("img").count()).toBe(0);
});

test("a link shows a section, alone and with a view", async ({ page, workdir }) => {
  const url = pathToFileURL(workdir.report(NSYS)).href;
  const functions = page.locator("#functions");
  await openAt(page, `${url}#functions`);
  await expect(functions).toBeInViewport();
  await openAt(page, url);
  await expect(functions).toBeHidden();
  await pick(page, 0.4);
  await addressOf(page, /^#at=/);
  const picked = await page.locator("#instant").textContent();
  await page.getByRole("tab", { name: "Functions" }).click();
  await expect(functions).toBeInViewport();
  await openAt(page, await addressOf(page, /^#at=[\d.]+&tab=functions$/));
  await expect(functions).toBeInViewport();
  await expect(page.locator("#instant")).toHaveText(picked);
  // Links within the page lead to tables of the last tab.
  await page.getByRole("tab", { name: "Details" }).click();
  await page.locator(".contents a", { hasText: "Figures" }).click();
  await expect(page.locator("#facts")).toBeInViewport();
});

test("all timelines zoom together", async ({ page, workdir }) => {
  await open(page, workdir.report(fixture("torch/snapshot_torch2.11.pickle.gz")));
  await reveal(page.locator("#chart-1 .u-over"));
  await page.locator("#chart-1").getByRole("button", { name: "Zoom in" }).click();
  for (const share of [0, 1]) {
    const time = async (chart) => /\+[\d.]+ s/.exec(await legendAt(page, chart, share))[0];
    expect(await time("#chart-0")).toBe(await time("#chart-1"));
  }
});

test("a link restores the range of a run without allocations", async ({ page, workdir }) => {
  await open(page, workdir.report(fixture("run/solver.flood")));
  await page.getByRole("button", { name: "Zoom in" }).first().click();
  const left = await legendAt(page, "#chart-0", 0);
  await openAt(page, await addressOf(page, /^#from=[\d.]+&to=[\d.]+$/));
  expect(await legendAt(page, "#chart-0", 0)).toBe(left);
});

test.describe("served", () => {
  test.use({ reachable: /^(http:\/\/127\.0\.0\.1:\d+\/|data:|blob:|about:)/ });
  test("a link keeps the token in the query and restores the exact selection", async ({ page, workdir, serve }) => {
    const { url } = await serve(workdir.write("long_log.dev0.csv", waves(60_000)));
    const before = new URL(url);
    await openAt(page, url);
    await pick(page, 0.31);
    await expect(page.locator("#instant")).not.toHaveText("Loading …");
    await pick(page, 0.62, ["Shift"]);
    await expect(page.locator("#instant")).toHaveText(/^From A at /);
    const compared = await viewOf(page);
    const address = new URL(await addressOf(page, /^#at=[\d.]+&with=[\d.]+$/));
    expect(address.href.replace(address.hash, "")).toBe(before.href);
    expect(address.hash).not.toContain(before.searchParams.get("token"));
    await openAt(page, address.href);
    expect(await viewOf(page)).toEqual(compared);
    await pointAt(page, "#chart-0", 0.5);
  });
});
