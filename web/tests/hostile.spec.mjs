// Hostile texts are shown as text. `fixtures/hostile/make.py` writes the files.

import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { documentOf, expect, fixture, matchesGolden, open, pointAt, test } from "./fixtures.mjs";

/** Elements that would exist if a text had been interpreted as markup. */
const INJECTED = "img, iframe, object, embed, link[rel=stylesheet], svg, form, b, #page script, [onerror], a[href^=http]";
const ACTIVE = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f]/;
const EXTENSIONS = ["csv", "pickle", "json", "log", "dat", "txt", "sqlite"];

/** Returns the directory of hostile files; creates it once per worker. */
function directory(workdir) {
  const parent = workdir.path("hostile");
  if (mkdirSync(parent, { recursive: true })) {
    execFileSync("python3", [fixture("hostile/make.py"), parent]);
  }
  return join(parent, readdirSync(parent).find((name) => name.startsWith("<")));
}

function hostile(workdir, extension) {
  const here = directory(workdir);
  return join(here, readdirSync(here).find((name) => name.endsWith(`.${extension}`)));
}

/** Asserts that a page shows hostile text without acting on it. */
async function harmless(page, shown) {
  expect(await page.locator(INJECTED).count()).toBe(0);
  const text = await page.locator("#page").textContent();
  expect(text).not.toMatch(ACTIVE);
  expect(text).toContain(shown);
  // Piles of combining marks must not reach other lines.
  expect(/\u0301{20}/u.test(text), "marks pile up").toBe(false);
  expect(await page.title()).not.toMatch(ACTIVE);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(1280);
  for (const open of await page.locator(".open:visible").all()) await open.click();
  if ((await page.locator("#chart-0 .u-over").count()) > 0) await pointAt(page, "#chart-0", 0.5);
  expect(await page.locator(INJECTED).count()).toBe(0);
}

for (const extension of EXTENSIONS) {
  test(`a hostile .${extension}`, async ({ page, workdir }) => {
    await open(page, workdir.report(hostile(workdir, extension), "--lenient"));
    await harmless(page, "script><img src=x onerror=alert(2)>");
    const name = await page.locator("h1").textContent();
    expect(name).toContain("script><img src=x onerror=alert(2)>[31m]0;owned");
  });
}

test("names of a hostile snapshot are shown in tables and in the icicle graph", async ({ page, workdir }) => {
  await open(page, workdir.report(hostile(workdir, "pickle")));
  await expect(page.locator("#held")).toContainText("evil <script>alert(1)</script>");
  await page.locator(".icicle canvas").focus();
  await page.keyboard.press("ArrowDown");
  await expect(page.locator(".icicle .description")).toContainText("evil <script>alert(1)</script>");
});

test("a recording of a hostile program", async ({ page, workdir }) => {
  const trace = workdir.path("evil <b>\u202e\u001b[31m.flood");
  workdir.run("run", "-q", "--stacks", "--mark", "phase .*", "-o", trace, "--", hostile(workdir, "py"));
  await open(page, workdir.report(trace));
  await harmless(page, "evil <script>alert(1)</script>");
  await expect(page.locator(".output p").first()).toContainText("phase evil <script>alert(1)</script>");
  expect((await documentOf(page)).marks.length).toBeGreaterThan(0);
});

test("appearance of hostile output", async ({ page, workdir }) => {
  await open(page, workdir.report(hostile(workdir, "log"), "--lenient"));
  await matchesGolden(page, "output-hostile", page.locator("#output"));
});
