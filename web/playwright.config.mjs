// Configuration of the browser tests: the installed Chromium (or the one that CHROMIUM names), one font, no network.
// A missing golden image is a failure; `npm run golden` writes all of them.

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "@playwright/test";

const web = dirname(fileURLToPath(import.meta.url));
const QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"];
const SAME = ["--font-render-hinting=none", "--disable-lcd-text", "--force-color-profile=srgb"];

export default defineConfig({
  testDir: "tests",
  outputDir: "results",
  snapshotPathTemplate: "{testDir}/golden/{arg}{ext}",
  updateSnapshots: "none",
  forbidOnly: true,
  fullyParallel: true,
  workers: 2,
  // Long enough for a busy machine.
  timeout: 120_000,
  // A recording made by a test depends on what else the machine does; a test that passes at a later try is listed as flaky.
  retries: 1,
  reporter: "dot",
  // Tolerates small differences of glyph edges between Chromium versions; a line in another color changes 5 pixels in 1,000.
  expect: { timeout: 30_000, toHaveScreenshot: { maxDiffPixelRatio: 0.002, threshold: 0.15, animations: "disabled", caret: "hide", scale: "css" } },
  use: {
    viewport: { width: 1280, height: 800 },
    permissions: ["clipboard-read", "clipboard-write"],
    deviceScaleFactor: 1,
    colorScheme: "light",
    locale: "en-US",
    timezoneId: "UTC",
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: ["--no-sandbox", "--disable-gpu", ...QUIET, ...SAME],
      env: { ...process.env, FONTCONFIG_FILE: join(web, "tests/fonts.conf") },
    },
  },
});
