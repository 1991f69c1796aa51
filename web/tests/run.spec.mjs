// Reports of runs: stacks, output and marks are shown at their times.

import { documentOf, expect, fixture, open, pointAt, test } from "./fixtures.mjs";

const SOLVER = fixture("run/solver.flood");

test("a dot shows its stack until it is closed", async ({ page, workdir }) => {
  await open(page, workdir.report(SOLVER));
  const chosen = page.locator("#chosen-stack");
  await expect(chosen).toBeHidden();
  await page.locator(".dot:visible").last().click({ force: true });
  await expect(chosen.locator("li", { hasText: /^main / })).toHaveCount(1);
  await chosen.getByRole("button", { name: "Close" }).click();
  await expect(chosen).toBeHidden();
});

test("the output follows the cursor", async ({ page, workdir }) => {
  await open(page, workdir.report(SOLVER));
  const { span, marks } = await documentOf(page);
  for (const mark of marks) {
    await pointAt(page, "#chart-0", (mark.time + 0.02e9) / span);
    await expect(page.locator(".output .now")).toContainText(mark.name);
  }
});

test("the cursor moves over a dot too", async ({ page, workdir }) => {
  await open(page, workdir.report(SOLVER));
  await expect(page.locator(".output .now")).toHaveCount(0);
  await page.locator(".dot:visible").last().hover({ force: true });
  await expect(page.locator(".output .now")).toHaveCount(1);
});

test("a value is valid until the next one", async ({ page, workdir }) => {
  await open(page, workdir.report(fixture("memory_logger/gdb_pstack.log")));
  // Memory rises to its peak at 10.3 of 15.63 seconds and was the same from second 5 on.
  const before = await pointAt(page, "#chart-0", 10.1 / 15.63);
  expect(before).toMatch(/\+10\.\d+ s/);
  expect(before).not.toContain("399.4 MiB");
  expect(await pointAt(page, "#chart-0", 10.6 / 15.63)).toContain("399.4 MiB");
});

test("the button changes the theme", async ({ page, workdir }) => {
  await open(page, workdir.report(SOLVER));
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.click("#theme");
  expect(await background()).toBe(light);
  await page.click("#theme");
  await expect(page.locator("#theme")).toHaveText("Colors: dark");
  expect(await background()).not.toBe(light);
  await page.click("#theme");
  expect(await background()).toBe(light);
});

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

test("a new recording has its peak, output, marks and stacks", async ({ page, workdir }) => {
  const script = workdir.write("grow.py", SCRIPT);
  const trace = workdir.path("run.flood");
  workdir.run("run", "--quiet", "-o", trace, "--stacks", "--mark", "step (0|4|8)", "--", "python3", script);
  await open(page, workdir.report(trace));
  const shown = await documentOf(page);
  expect(shown.charts[0].peak.bytes).toBe(workdir.json("info", trace).memory.peak_rss_bytes);
  expect(shown.marks.map(({ name }) => name)).toEqual(["step 0", "step 4", "step 8"]);
  const lines = page.locator(".output p");
  await expect(lines).toHaveCount(16);
  await expect(lines.first()).toContainText("step 0 <script>alert(1)</script>");
  await expect(page.locator(".output .stderr")).toHaveCount(3);
  // After the last mark, whose time depends on the load of the machine.
  await pointAt(page, "#chart-0", (1 + shown.marks[2].time / shown.span) / 2);
  await expect(page.locator(".output .now")).toHaveText(/step \d+ <script>|warning|done/);
  await page.locator(".dot:visible").last().click({ force: true });
  expect(await page.locator("#chosen-stack li").count()).toBeGreaterThan(0);
});

const THREADS = `
import threading, time
done = threading.Event()
waiting = [threading.Thread(target=done.wait) for _ in range(3)]
for thread in waiting:
    thread.start()
held = []
def assemble():
    held.append(bytearray(6_000_000))
    deadline = time.monotonic() + 0.04
    while time.monotonic() < deadline:
        pass
for _ in range(10):
    assemble()
done.set()
`;

test("a moment has one dot that lists its threads, the working one first", async ({ page, workdir }) => {
  const script = workdir.write("threads.py", THREADS);
  const trace = workdir.path("threads.flood");
  workdir.run("run", "--quiet", "-o", trace, "--stacks", "--", "python3", script);
  await open(page, workdir.report(trace));
  const { dots } = await documentOf(page);
  expect(new Set(dots.map(({ time }) => time)).size).toBe(dots.length);
  await expect(page.locator("#chart-0 .dot")).toHaveCount(dots.length);
  const at = dots.findLastIndex(({ threads }) => threads.length === 4);
  expect(at).toBeGreaterThanOrEqual(0);
  // By keyboard alone.
  await page.locator("#chart-0 .dot").nth(at).focus();
  await page.keyboard.press("Enter");
  const chosen = page.locator("#chosen-stack");
  await expect(chosen.locator("h3")).toContainText(/^Stacks at \+[\d.]+s \((peak|fault)\)$/);
  const stack = chosen.locator("> .stack");
  await expect(stack).toHaveCount(1);
  await expect(stack).toContainText(/assemble .*threads\.py:\d+/);
  await expect(stack).not.toContainText("_PyEval_EvalFrameDefault");
  const waiting = chosen.locator("details.waiting");
  await expect(waiting.locator("summary")).toHaveText("3 waiting threads");
  await expect(waiting.locator(".stack").first()).toBeHidden();
  await waiting.locator("summary").focus();
  await page.keyboard.press("Enter");
  await expect(waiting.locator(".stack")).toHaveCount(3);
  await expect(waiting.locator(".stack").first()).toBeVisible();
});
