// Pages that a server hands out: they follow a recording, show single events, and are for nobody else.

import { once } from "node:events";
import { createInterface } from "node:readline";
import { test as base, expect } from "./reader.mjs";

/** Serves an input until the test ends. */
const test = base.extend({
  serve: async ({ desk }, use) => {
    const started = [];
    await use(async (input, ...options) => {
      const server = desk.start("serve", input, ...options);
      started.push(server);
      const [url] = await once(createInterface({ input: server.stdout }), "line");
      return { url, server };
    });
    for (const child of started) child.kill("SIGKILL");
  },
  /** Records a script until it ends, or the test does. */
  record: async ({ desk }, use) => {
    const started = [];
    await use(async (name, script) => {
      const trace = desk.path(`${name}.flood`);
      const child = desk.start("run", "--quiet", "-o", trace, "--mark", "step 3", "--", "python3", "-c", script);
      started.push(child);
      await once(child.stdout, "data");
      return { trace, child };
    });
    for (const child of started) child.kill("SIGKILL");
  },
});
test.use({ reachable: /^(http:\/\/127\.0\.0\.1:\d+\/|data:|blob:)/ });

async function openAt(page, url) {
  await page.goto(url);
  await expect(page.locator("html")).toHaveAttribute("data-ready", /true|failed/);
  await expect(page.locator("html")).toHaveAttribute("data-ready", "true");
}

const GROWS = `
import sys, time
held = []
for step in range(400):
    print(f"step {step}", flush=True)
    held.append(bytearray(2_000_000))
    time.sleep(0.02)
`;

/** A log with more changes than a report keeps: thirty blocks come, one each millisecond, and go again. */
function many(count) {
  const lines = ["Thread,Time,Action,Pointer,Size,Stream"];
  for (let at = 0; at < count; at++) {
    const time = `10:00:${String(Math.floor(at / 1000)).padStart(2, "0")}.${String((at % 1000) * 1000).padStart(6, "0")}`;
    const turn = at % 60;
    const block = (turn < 30 ? turn : 59 - turn) + 1;
    lines.push(`1,${time},${turn < 30 ? "allocate" : "free"},0x${(block << 20).toString(16)},${block << 10},0x0`);
  }
  return `${lines.join("\n")}\n`;
}

/** What is in sight, in seconds since the origin. */
async function view(page, chart) {
  const over = page.locator(`${chart} .u-over`);
  await over.scrollIntoViewIfNeeded();
  const { width } = await over.boundingBox();
  const at = async (x) => {
    await over.hover({ position: { x, y: 60 } });
    return Number(/\+([\d.]+) s/.exec(await page.locator(`${chart} .u-legend`).textContent())[1]);
  };
  return [await at(1), await at(width - 2)];
}

test("a page follows a recording, and what a reader has set stays", async ({ page, serve, record }) => {
  const { trace, child } = await record("grows", GROWS);
  const { url } = await serve(trace);
  await openAt(page, url);
  await expect(page.locator("#serving")).toHaveText(/^live, \d/);
  const lead = await page.locator(".lead").textContent();
  const lines = await page.locator(".output p").count();
  // The reader chooses colors, an order and a part of the timeline.
  await page.click("#theme");
  await page.click("#theme");
  const head = page.locator("#processes th", { hasText: "pid" });
  await head.locator("button").click();
  await expect(head).toHaveAttribute("aria-sort", "descending");
  await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
  const seen = await view(page, "#chart-0");
  await page.evaluate(() => {
    window.isSame = true;
    scrollTo(0, 300);
  });
  await expect(page.locator(".lead")).not.toHaveText(lead);
  await expect.poll(() => page.locator(".output p").count()).toBeGreaterThan(lines);
  expect(await page.evaluate(() => [window.isSame, scrollY])).toEqual([true, 300]);
  const after = await view(page, "#chart-0");
  for (const end of [0, 1]) expect(Math.abs(after[end] - seen[end])).toBeLessThan(0.05);
  await expect(head).toHaveAttribute("aria-sort", "descending");
  await expect(page.locator("#theme")).toHaveText("Colors: dark");
  expect(await page.evaluate(() => document.documentElement.dataset.theme)).toBe("dark");
  child.kill("SIGTERM");
  await expect(page.locator("#serving")).toHaveText("ended", { timeout: 20_000 });
});

test("a whole view grows with the recording", async ({ page, serve, record }) => {
  const { trace } = await record("whole", GROWS);
  await openAt(page, (await serve(trace)).url);
  const [, end] = await view(page, "#chart-0");
  await expect.poll(async () => (await view(page, "#chart-0"))[1], { timeout: 20_000 }).toBeGreaterThan(end + 3);
});

test("zooming ends at single events", async ({ page, desk, serve }) => {
  const { url } = await serve(desk.write("many.csv", many(60_000)));
  await openAt(page, url);
  const note = page.locator("#chart-0 > .note").last();
  await expect(note).toContainText("Reduced");
  const range = page.waitForResponse((answer) => answer.url().includes("/api/range"));
  const zoom = page.locator("#chart-0").getByRole("button", { name: "Zoom in" });
  for (let times = 0; times < 11; times++) await zoom.click();
  expect((await range).status()).toBe(200);
  await expect(note).toContainText("Every change is drawn.");
  // Sixty seconds, halved eleven times, are thirty events.
  const [from, to] = await view(page, "#chart-0");
  expect(to - from).toBeLessThan(0.031);
  const legend = page.locator("#chart-0 .u-legend");
  const over = page.locator("#chart-0 .u-over");
  const { x, y, width } = await over.boundingBox();
  const values = new Set();
  for (let by = 2; by < width; by += 24) {
    await page.mouse.move(x + by, y + 60);
    values.add((await legend.textContent()).replace(/.*device/, ""));
  }
  expect(values.size).toBeGreaterThan(12);
  await page.locator("#chart-0").getByRole("button", { name: "Show all" }).click();
  await expect(note).toContainText("Reduced");
});

test("any instant is what the command says of it", async ({ page, desk, serve }) => {
  const input = desk.write("any.csv", many(60_000));
  await openAt(page, (await serve(input)).url);
  const over = page.locator("#chart-0 .u-over");
  const { width } = await over.boundingBox();
  const answer = page.waitForResponse((answer) => answer.url().includes("/api/moment"));
  await over.click({ position: { x: Math.round(width * 0.37), y: 60 } });
  const at = Number(new URL((await answer).url()).searchParams.get("at"));
  const mark = desk.json("watermark", input, "--at", `+${at}ns`);
  await expect(page.locator("#instant")).toContainText(`in ${mark.blocks.length} block`);
});

test("without its token a page says how to get one", async ({ browser, desk, serve }) => {
  const { url } = await serve(desk.write("short.csv", many(30)));
  const page = await browser.newPage();
  const answer = await page.goto(url.replace(/.$/, (last) => (last === "0" ? "1" : "0")));
  expect(answer.status()).toBe(403);
  await expect(page.locator("body")).toContainText("Open the address that 'floodmark serve' printed");
  await page.close();
});

test("a page says when its server is gone", async ({ browser, desk, serve }) => {
  const { url, server } = await serve(desk.write("gone.csv", many(300)));
  const page = await browser.newPage();
  await openAt(page, url);
  await expect(page.locator("#serving")).toHaveText("ended");
  server.kill("SIGTERM");
  await once(server, "exit");
  await expect(page.locator("#serving")).toHaveText("connection lost, trying again");
  await page.close();
});
