// Writes docs/report.png: the report of a PyTorch snapshot, zoomed to its training steps, with a search.
//
// `npm run picture` needs the program (target/debug/floodmark, or FLOODMARK) and Chromium, like the tests.

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "@playwright/test";
import config from "../playwright.config.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const program = resolve(process.env.FLOODMARK ?? join(root, "target/debug/floodmark"));
const [WIDTH, HEIGHT] = [1280, 800];
/** The part of the timeline with training steps, in seconds. */
const STEPS = "from=3.744&to=3.852";

const directory = mkdtempSync(join(tmpdir(), "floodmark-picture-"));
const report = join(directory, "report.html");
const browser = await chromium.launch(config.use.launchOptions);
try {
  const input = "snapshot_torch2.11.pickle.gz";
  execFileSync(program, ["report", input, "-o", report, "--quiet"], { cwd: join(root, "fixtures/torch") });
  const page = await browser.newPage({ viewport: { width: WIDTH, height: HEIGHT }, colorScheme: "light" });
  await page.goto(`${pathToFileURL(report).href}#${STEPS}&find=forward`);
  await page.waitForSelector("html[data-ready=true]");
  await page.screenshot({ path: join(root, "docs/report.png") });
} finally {
  await browser.close();
  rmSync(directory, { recursive: true });
}
