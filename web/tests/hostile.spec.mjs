// Texts that try to act on a page are shown as text. `fixtures/hostile/make.py` writes the files.

import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { documentOf, expect, fixture, looks, open, pointAt, test } from "./reader.mjs";

/** Everything that texts could have made, had they been taken for markup. */
const MADE = "img, iframe, object, embed, link[rel=stylesheet], svg, form, b, #page script, [onerror], a[href^=http]";
const ACTIVE = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f]/;
const ENDINGS = ["csv", "pickle", "json", "log", "dat", "txt", "sqlite"];

/** The folder of hostile files; made once per worker. */
function folder(desk) {
  const place = desk.path("hostile");
  if (mkdirSync(place, { recursive: true })) {
    execFileSync("python3", [fixture("hostile/make.py"), place]);
  }
  return join(place, readdirSync(place).find((name) => name.startsWith("<")));
}

function hostile(desk, ending) {
  const here = folder(desk);
  return join(here, readdirSync(here).find((name) => name.endsWith(`.${ending}`)));
}

/** Asserts that a page shows what it has as text, and shows it. */
async function harmless(page, says) {
  expect(await page.locator(MADE).count()).toBe(0);
  const text = await page.locator("#page").textContent();
  expect(text).not.toMatch(ACTIVE);
  expect(text).toContain(says);
  // No pile of marks reaches other lines.
  expect(/\u0301{20}/u.test(text), "marks pile up").toBe(false);
  expect(await page.title()).not.toMatch(ACTIVE);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(1280);
  for (const open of await page.locator(".open:visible").all()) await open.click();
  if ((await page.locator("#chart-0 .u-over").count()) > 0) await pointAt(page, "#chart-0", 0.5);
  expect(await page.locator(MADE).count()).toBe(0);
}

for (const ending of ENDINGS) {
  test(`a hostile .${ending}`, async ({ page, desk }) => {
    await open(page, desk.report(hostile(desk, ending), "--lenient"));
    await harmless(page, "script><img src=x onerror=alert(2)>");
    const name = await page.locator("h1").textContent();
    expect(name).toContain("script><img src=x onerror=alert(2)>[31m]0;owned");
  });
}

test("names of a hostile snapshot are shown in tables and in the icicle", async ({ page, desk }) => {
  await open(page, desk.report(hostile(desk, "pickle")));
  await expect(page.locator("#held")).toContainText("evil <script>alert(1)</script>");
  await page.locator(".icicle canvas").focus();
  await page.keyboard.press("ArrowDown");
  await expect(page.locator(".icicle .says")).toContainText("evil <script>alert(1)</script>");
});

test("a hostile program that was recorded", async ({ page, desk }) => {
  const trace = desk.path("evil <b>\u202e\u001b[31m.flood");
  desk.run("run", "-q", "--stacks", "--mark", "phase .*", "-o", trace, "--", hostile(desk, "py"));
  await open(page, desk.report(trace));
  await harmless(page, "evil <script>alert(1)</script>");
  await expect(page.locator(".output p").first()).toContainText("phase evil <script>alert(1)</script>");
  expect((await documentOf(page)).marks.length).toBeGreaterThan(0);
});

test("how hostile output looks", async ({ page, desk }) => {
  await open(page, desk.report(hostile(desk, "log"), "--lenient"));
  await looks(page, "output-hostile", page.locator("#output"));
});
