// How reports are tested in a browser: the Chromium that is installed (CHROMIUM names another), one font, nothing
// of the network. A golden image that is missing is a failure; `npm run golden` writes them anew.

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
  // For machines that do much else.
  timeout: 120_000,
  reporter: "dot",
  // Edges of letters may differ a little between versions of Chromium; a line in another color is 5 pixels in 1,000.
  expect: { timeout: 30_000, toHaveScreenshot: { maxDiffPixelRatio: 0.002, threshold: 0.15, animations: "disabled", caret: "hide", scale: "css" } },
  use: {
    viewport: { width: 1280, height: 900 },
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
