// Opens reports in a real browser, from files, as a reader does. Wants the program in FLOODMARK and a
// Chromium (CHROMIUM, or /usr/bin/chromium). Pictures go to `shots/`, for people to look at.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const web = dirname(fileURLToPath(import.meta.url));
const fixtures = join(web, "../fixtures");
const program = resolve(process.env.FLOODMARK ?? join(web, "../target/debug/floodmark"));
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const shots = join(web, "shots");
const work = mkdtempSync(join(tmpdir(), "floodmark-check-"));
mkdirSync(shots, { recursive: true });

const SCRIPT = `
import sys, time
held = []
def grow(step):
    held.append(bytearray((step + 1) * 4_000_000))
    time.sleep(0.05)
for step in range(12):
    print(f"step {step} <script>alert(1)</script>", flush=True)
    grow(step)
    if step % 4 == 3:
        print("warning: much memory", file=sys.stderr, flush=True)
held.clear()
time.sleep(0.2)
print("done", flush=True)
`;

/** A log of RMM with three threads whose blocks grow, stay and go. */
function log() {
  let seed = 7;
  const random = (below) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return Math.floor((seed / 2147483648) * below);
  };
  const lines = ["Thread,Time,Action,Pointer,Size,Stream"];
  const live = [];
  for (let at = 0; at < 6000; at++) {
    const time = `10:00:${String(Math.floor(at / 100)).padStart(2, "0")}.${String((at % 100) * 10000).padStart(6, "0")}`;
    const wave = 40 + 35 * Math.sin(at / 700);
    if (live.length > wave && random(3) > 0) {
      const [block] = live.splice(random(live.length), 1);
      lines.push(`${block.thread},${time},free,${block.pointer},${block.size},${block.stream}`);
    } else {
      const thread = 100 + random(3);
      const block = { thread, pointer: `0x${(0x7f0000000000 + at * 0x10000000).toString(16)}`, size: 256 << random(18), stream: `0x${thread % 2}` };
      live.push(block);
      lines.push(`${thread},${time},allocate,${block.pointer},${block.size},${block.stream}`);
    }
  }
  const file = join(work, "rmm_log.dev0.csv");
  writeFileSync(file, `${lines.join("\n")}\n`);
  return file;
}

/** Writes a report and returns where it is. */
function report(name, input, ...options) {
  const output = join(work, `${name}.html`);
  execFileSync(program, ["report", input, "-o", output, "--quiet", ...options]);
  return output;
}

function recorded() {
  const script = join(work, "grow.py");
  writeFileSync(script, SCRIPT);
  const trace = join(work, "run.flood");
  const args = ["run", "--quiet", "-o", trace, "--stacks", "--mark", "step (0|4|8)", "--", "python3", script];
  execFileSync(program, args, { stdio: ["ignore", "ignore", "ignore"] });
  return report("run", trace);
}

async function open(browser, file, options = {}) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
  const troubles = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && troubles.push(message.text()));
  page.on("pageerror", (error) => troubles.push(String(error)));
  page.on("request", (request) => /^(file|data|blob):/.test(request.url()) || troubles.push(`asks for ${request.url()}`));
  page.on("dialog", (dialog) => troubles.push(`dialog: ${dialog.message()}`));
  await page.goto(pathToFileURL(file).href);
  if (options.javaScriptEnabled !== false) await page.waitForSelector("html[data-ready=true]");
  return { page, troubles };
}

async function shoot(page, name) {
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.waitForTimeout(150);
  await page.screenshot({ path: join(shots, `${name}-1280.png`), fullPage: true });
  await page.screenshot({ path: join(shots, `${name}-first.png`) });
  await page.setViewportSize({ width: 400, height: 800 });
  await page.waitForTimeout(150);
  await page.screenshot({ path: join(shots, `${name}-400.png`), fullPage: true });
  await page.screenshot({ path: join(shots, `${name}-400-first.png`) });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 400, `${name} scrolls sideways at 400 pixels: ${wide}`);
  await page.setViewportSize({ width: 1280, height: 900 });
}

async function checkEvents(browser, name, file) {
  const { page, troubles } = await open(browser, file);
  assert.match(await page.textContent(".lead"), /^Memory rose to /);
  await shoot(page, name);

  // Sorts: figures begin with the largest, and turn around.
  const table = page.locator("#sizes");
  const first = () => table.locator("tbody tr").first().locator("td").nth(2).textContent();
  const figure = async () => Number((await first()).replaceAll(",", ""));
  await table.locator("th button", { hasText: "allocations" }).click();
  const largest = await figure();
  await table.locator("th button", { hasText: "allocations" }).click();
  assert.ok((await figure()) < largest, "sorting turns around");

  // Searches.
  const blocks = page.locator("#blocks");
  const rows = await blocks.locator("tbody tr").count();
  const wanted = await blocks.locator("tbody tr").nth(1).locator("td").nth(1).textContent();
  await blocks.locator("input").fill(wanted);
  assert.ok((await blocks.locator("tbody tr").count()) < rows, "searching narrows");
  await blocks.locator("input").fill("");

  // Goes into the icicle and out again.
  const canvas = page.locator(".icicle canvas");
  await canvas.scrollIntoViewIfNeeded();
  await canvas.focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  assert.equal(await page.locator(".crumbs button").count(), 2);
  await page.keyboard.press("Escape");
  assert.equal(await page.locator(".crumbs button").count(), 1);
  await canvas.click({ position: { x: 30, y: 30 } });
  assert.equal(await page.locator(".crumbs button").count(), 2);
  await page.locator("#holders").screenshot({ path: join(shots, `${name}-icicle.png`) });
  await page.locator("#holders summary").click();
  await page.locator("#holders tbody tr").first().waitFor();

  // The legend says what is under the cursor.
  const over = page.locator("#chart-0 .u-over");
  await over.scrollIntoViewIfNeeded();
  await over.hover({ position: { x: 300, y: 50 } });
  assert.match(await page.textContent("#chart-0 .u-legend"), /\+\d.* s/);

  // Zooms, by button and by key, and comes back.
  const left = async () => {
    await over.hover({ position: { x: 60, y: 40 } });
    await over.hover({ position: { x: 2, y: 40 } });
    return Number(/\+([\d.]+) s/.exec(await page.textContent("#chart-0 .u-legend"))[1]);
  };
  const begin = await left();
  await page.getByRole("button", { name: "Zoom to the peak" }).first().click();
  assert.ok((await left()) > begin, "the peak is not at the beginning");
  await page.getByRole("button", { name: "Show all" }).first().click();
  assert.equal(await left(), begin);
  await over.focus();
  await page.keyboard.press("+");
  assert.ok((await left()) > begin, "a key zooms in");
  await page.keyboard.press("0");
  assert.equal(await left(), begin);
  assert.deepEqual(troubles, []);
  await page.close();
}

async function checkStacks(browser, file) {
  const { page, troubles } = await open(browser, file);
  await page.locator("#sites .open").first().click();
  assert.ok((await page.locator("#sites .detail .stack li").count()) > 1, "a site opens to its stacks");
  assert.deepEqual(troubles, []);
  await page.close();
}

async function checkRun(browser, file) {
  const { page, troubles } = await open(browser, file, { colorScheme: "light" });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.click("#theme");
  await page.click("#theme");
  assert.equal(await page.textContent("#theme"), "Colors: dark");
  assert.notEqual(await background(), light);
  await shoot(page, "run-dark");
  await page.click("#theme");
  assert.equal(await background(), light);

  // A dot shows its stack.
  const dot = page.locator(".dot:visible").last();
  await dot.click({ force: true });
  assert.ok(await page.isVisible("#chosen-stack"));
  assert.ok((await page.locator("#chosen-stack li").count()) > 0, "a dot has a stack");

  // Output follows the cursor, and is text whatever it says.
  await page.locator("#chart-0 .u-over").hover({ position: { x: 500, y: 40 } });
  assert.match(await page.textContent(".output .now"), /step \d+ <script>alert\(1\)<\/script>|warning/);
  await shoot(page, "run");
  await page.emulateMedia({ media: "print" });
  await page.screenshot({ path: join(shots, "run-print.png"), fullPage: true });
  assert.deepEqual(troubles, []);
  await page.close();
}

/** A value holds until the next, so the legend says the one before the cursor, however near the next is. */
async function checkHolding(browser, file) {
  const { page, troubles } = await open(browser, file);
  const over = page.locator("#chart-0 .u-over");
  const { width } = await over.boundingBox();
  // Memory rises to its peak at 10.3 of 15.6 seconds and was the same from second 5 on.
  await over.hover({ position: { x: (width * 10.1) / 15.63, y: 40 } });
  const before = await page.textContent("#chart-0 .u-legend");
  assert.match(before, /\+10\.\d+ s/);
  assert.ok(!before.includes("399.4 MiB"), before);
  await over.hover({ position: { x: (width * 10.6) / 15.63, y: 40 } });
  assert.match(await page.textContent("#chart-0 .u-legend"), /399\.4 MiB/);
  assert.deepEqual(troubles, []);
  await page.close();
}

async function checkWithoutScript(browser, file) {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const { page } = await open(context, file, { javaScriptEnabled: false });
  assert.match(await page.textContent(".static"), /Memory rose to .*Sizes of allocations/s);
  await page.screenshot({ path: join(shots, "no-script.png") });
  await context.close();
}

async function checkHostile(browser) {
  const log = join(work, "</title><script>alert(1)<");
  mkdirSync(log, { recursive: true });
  const file = join(log, "script><img src=x onerror=alert(2)>.csv");
  writeFileSync(file, "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000001,allocate,0x10,4096,0x0\n");
  const { page, troubles } = await open(browser, report("hostile", file));
  assert.equal(await page.locator("img").count(), 0);
  assert.deepEqual(troubles, []);
  await page.close();
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
try {
  const rmm = report("rmm", log());
  const torch = report("torch", join(fixtures, "torch/snapshot_torch2.11.pickle.gz"));
  await checkEvents(browser, "rmm", rmm);
  await checkEvents(browser, "torch", torch);
  await checkStacks(browser, torch);
  await checkRun(browser, recorded());
  await checkHolding(browser, report("held", join(fixtures, "memory_logger/gdb_pstack.log")));
  await checkWithoutScript(browser, rmm);
  await checkHostile(browser);
  console.log("the reports work");
} finally {
  await browser.close();
  rmSync(work, { recursive: true, force: true });
}
