// Links to a view: who opens the address that a page has come to sees what its reader saw.

import { pathToFileURL } from "node:url";
import { expect, fixture, legendAt, open, pick, pointAt, rowsOf, serving, test as base, waves } from "./reader.mjs";

const test = serving(base);
const NSYS = fixture("nsys/small_2025.3.sqlite");
const rmm = (desk) => desk.write("rmm_log.dev0.csv", waves());

/** All that depends on what is looked at. */
async function seen(page) {
  const text = (place) => page.locator(place).allTextContents();
  return {
    says: await text("#instant"),
    found: await page.locator("#found:visible").allTextContents(),
    live: await rowsOf(page.locator("#live")),
    held: await rowsOf(page.locator("#held")),
    gone: await page.locator("#gone:visible").count(),
    way: await page.locator("#way").inputValue(),
    turned: await text('[aria-pressed="true"]'),
    left: await legendAt(page, "#chart-0", 0),
    right: await legendAt(page, "#chart-0", 1),
  };
}

/** The address, once it has come to rest. */
async function addressOf(page, wanted) {
  await expect.poll(() => new URL(page.url()).hash).toMatch(wanted);
  await page.waitForTimeout(300);
  return page.url();
}

async function openAt(page, url) {
  // A change of the fragment alone would not open it anew.
  await page.goto("about:blank");
  await page.goto(url);
  await expect(page.locator("html")).toHaveAttribute("data-ready", "true");
}

test("a page that nobody touched has no fragment", async ({ page, desk }) => {
  await open(page, desk.report(NSYS));
  await page.waitForTimeout(500);
  expect(new URL(page.url()).hash).toBe("");
});

test("a link leads to the instant that was picked", async ({ page, desk }) => {
  await open(page, desk.report(rmm(desk)));
  const peak = await seen(page);
  await pick(page, 0.3);
  const picked = await seen(page);
  expect(picked.says).not.toEqual(peak.says);
  const url = await addressOf(page, /^#at=\d+(\.\d+)?$/);
  await openAt(page, url);
  expect(await seen(page)).toEqual(picked);
  // Back at the peak there is nothing to say.
  await page.getByRole("button", { name: "At the peak" }).click();
  await addressOf(page, /^$/);
  expect(await seen(page)).toEqual(peak);
});

test("a link leads to two instants, a span, a grouping, a search and what stands on top", async ({ page, desk }) => {
  await open(page, desk.report(NSYS));
  await page.getByRole("button", { name: "Zoom in" }).first().click();
  await pick(page, 0.2);
  await pick(page, 0.7, ["Shift"]);
  await page.locator("#way").selectOption("stack with every frame");
  await page.getByRole("button", { name: "Innermost on top" }).click();
  await page.getByRole("searchbox", { name: "Search calls" }).fill("main");
  const chosen = await seen(page);
  expect(chosen.says[0]).toMatch(/^From A at /);
  const url = await addressOf(page, /^#at=[\d.]+&with=[\d.]+&from=[\d.]+&to=[\d.]+&by=stack\+with\+every\+frame&top=innermost&find=main$/);
  await openAt(page, url);
  expect(await seen(page)).toEqual(chosen);
});

test("the peak is named, because it may lie within an instant", async ({ page, desk }) => {
  await open(page, desk.report(NSYS));
  await page.getByRole("button", { name: "Compare from here" }).click();
  await page.getByRole("button", { name: "Earlier" }).click();
  const compared = await seen(page);
  await openAt(page, await addressOf(page, /^#at=[\d.]+&with=peak$/));
  expect(await seen(page)).toEqual(compared);
});

test("another fragment in the same page shows another view", async ({ page, desk }) => {
  const url = pathToFileURL(desk.report(rmm(desk))).href;
  await openAt(page, `${url}#at=10&from=5&to=30`);
  const first = await seen(page);
  expect(first.left).toMatch(/\+5\.\d* s/);
  await page.goto(`${url}#at=20`);
  await expect(page.locator("#instant")).not.toHaveText(first.says[0]);
  const second = await seen(page);
  await openAt(page, `${url}#at=20`);
  expect(await seen(page)).toEqual(second);
});

const nonsense = ["at=banana", "at=-3", "at=1e999", "at=99999999", "with=NaN", "from=7&to=2", "from=&to=", "from=99999998&to=99999999", "by=%3Cimg%20src=x%3E", "top=sideways", "%", "at=%E0%A4%A&&&==", "__proto__=1", "no-such-section"];
for (const fragment of nonsense) {
  test(`#${fragment} shows what there is without it`, async ({ page, desk }) => {
    const file = desk.report(NSYS);
    await open(page, file);
    const plain = await seen(page);
    await openAt(page, `${pathToFileURL(file).href}#${fragment}`);
    expect(await seen(page)).toEqual(plain);
  });
}

test("a search in a link is text", async ({ page, desk }) => {
  await openAt(page, `${pathToFileURL(desk.report(NSYS)).href}#find=${encodeURIComponent("<img src=x onerror=alert(1)>")}`);
  await expect(page.locator("#found")).toHaveText("No call matches.");
  expect(await page.locator("img").count()).toBe(0);
});

test("a link to a section leads there, alone and with a view", async ({ page, desk }) => {
  const url = pathToFileURL(desk.report(NSYS)).href;
  const top = () => page.locator("#functions").evaluate((section) => section.getBoundingClientRect().top);
  await openAt(page, `${url}#functions`);
  await expect.poll(async () => Math.abs(await top())).toBeLessThan(40);
  await openAt(page, url);
  await pick(page, 0.4);
  await addressOf(page, /^#at=/);
  const picked = await page.locator("#instant").textContent();
  await page.locator(".contents a", { hasText: "Functions" }).click();
  await expect.poll(async () => Math.abs(await top())).toBeLessThan(40);
  await openAt(page, await addressOf(page, /^#functions&at=/));
  await expect.poll(async () => Math.abs(await top())).toBeLessThan(40);
  await expect(page.locator("#instant")).toHaveText(picked);
});

test("all timelines zoom together", async ({ page, desk }) => {
  await open(page, desk.report(rmm(desk)));
  await page.locator("#chart-1").getByRole("button", { name: "Zoom in" }).click();
  for (const share of [0, 1]) {
    const time = async (chart) => /\+[\d.]+ s/.exec(await legendAt(page, chart, share))[0];
    expect(await time("#chart-0")).toBe(await time("#chart-1"));
  }
});

test("a span of a run without allocations is in its link", async ({ page, desk }) => {
  await open(page, desk.report(fixture("run/solver.flood")));
  await page.getByRole("button", { name: "Zoom in" }).first().click();
  const left = await legendAt(page, "#chart-0", 0);
  await openAt(page, await addressOf(page, /^#from=[\d.]+&to=[\d.]+$/));
  expect(await legendAt(page, "#chart-0", 0)).toBe(left);
});

test.describe("served", () => {
  test.use({ reachable: /^(http:\/\/127\.0\.0\.1:\d+\/|data:|blob:|about:)/ });
  test("a link keeps the token where it was, and leads to exactly what was picked", async ({ page, desk, serve }) => {
    const { url } = await serve(desk.write("long_log.dev0.csv", waves(60_000)));
    const before = new URL(url);
    await openAt(page, url);
    await pick(page, 0.31);
    await expect(page.locator("#instant")).not.toHaveText("Looking …");
    await pick(page, 0.62, ["Shift"]);
    await expect(page.locator("#instant")).toHaveText(/^From A at /);
    const compared = await seen(page);
    const address = new URL(await addressOf(page, /^#at=[\d.]+&with=[\d.]+$/));
    expect(address.href.replace(address.hash, "")).toBe(before.href);
    expect(address.hash).not.toContain(before.searchParams.get("token"));
    await openAt(page, address.href);
    expect(await seen(page)).toEqual(compared);
    await pointAt(page, "#chart-0", 0.5);
  });
});
