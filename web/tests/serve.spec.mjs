// Served pages: they follow a recording, show single events, and need a token.

import { once } from "node:events";
import { expect, reveal, rowsOf, serving, test as base } from "./fixtures.mjs";

const test = serving(base).extend({
  /** Records a script until it or the test ends. */
  record: async ({ workdir }, use) => {
    const started = [];
    await use(async (name, script) => {
      const trace = workdir.path(`${name}.flood`);
      const child = workdir.start("run", "--quiet", "-o", trace, "--mark", "step 3", "--", "python3", "-c", script);
      started.push(child);
      await once(child.stdout, "data");
      return { trace, child };
    });
    for (const child of started) child.kill("SIGKILL");
  },
});
/** Adds a fixture with a trace of allocations that grows on demand and stays live until the test ends. */
const testWithWriter = test.extend({
  write: async ({ workdir }, use) => {
    const started = [];
    await use(async (name) => {
      const trace = workdir.path(`${name}.flood`);
      // The writer acknowledges each event and blocks while its output is not read.
      const child = workdir.startOther("floodmark-writer", trace, "6", "1000000", "--ack");
      started.push(child);
      await once(child, "spawn");
      let acknowledged = 0;
      const more = async () => {
        const wanted = acknowledged + 100;
        while (acknowledged < wanted) {
          const chunk = child.stdout.read();
          if (chunk) acknowledged += chunk.toString().split("\n").length - 1;
          else await once(child.stdout, "readable");
        }
      };
      await more();
      return { trace, more, child };
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
for step in range(1200):
    print(f"step {step}", flush=True)
    held.append(bytearray(500_000))
    time.sleep(0.05)
`;

/** Returns a script that starts a second process when a file exists. */
const forks = (go) => `
import os, subprocess, sys, time
print("alone", flush=True)
while not os.path.exists(${JSON.stringify(go)}):
    time.sleep(0.05)
subprocess.run([sys.executable, "-c", "import time; held = bytearray(30_000_000); time.sleep(60)"])
`;

/** Returns a log with more changes than a report stores: thirty allocations, one per millisecond, then their frees. */
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

/** Returns the visible range of a timeline, in seconds since the origin. */
async function visibleRange(page, chart) {
  const over = page.locator(`${chart} .u-over`);
  await reveal(over);
  const at = async (x) => {
    await over.hover({ position: { x, y: 60 }, timeout: 2000 });
    return Number(/\+([\d.]+) s/.exec(await page.locator(`${chart} .u-legend`).textContent())[1]);
  };
  let range;
  // A growing timeline may be redrawn in between.
  await expect(async () => {
    const { width } = await over.boundingBox({ timeout: 2000 });
    range = [await at(1), await at(width - 2)];
    // What is beside the timeline may change its width in between.
    expect((await over.boundingBox({ timeout: 2000 })).width).toBe(width);
  }).toPass({ timeout: 60_000 });
  return range;
}

test("a page follows a recording and keeps the settings of the reader", async ({ page, serve, record }) => {
  const { trace, child } = await record("grows", GROWS);
  const { url } = await serve(trace);
  await openAt(page, url);
  await expect(page.locator("#serving")).toHaveText(/^live, \d/);
  const lead = await page.locator(".lead").textContent();
  const lines = await page.locator(".output p").count();
  // The reader chooses a theme, an order and a range.
  await page.click("#theme");
  await page.click("#theme");
  const head = page.locator("#processes th", { hasText: "pid" });
  await page.getByRole("tab", { name: "Processes" }).click();
  await head.locator("button").click();
  await expect(head).toHaveAttribute("aria-sort", "descending");
  await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
  const before = await visibleRange(page, "#chart-0");
  // The position of a table in the window.
  const position = () => page.evaluate(() => document.querySelector("#processes").getBoundingClientRect().top);
  await page.evaluate(() => {
    window.isSame = true;
    document.querySelector("#processes").scrollIntoView();
  });
  const top = await position();
  await expect(page.locator(".lead")).not.toHaveText(lead);
  await expect.poll(() => page.locator(".output p").count()).toBeGreaterThan(lines);
  // It stays in place while the content above it grows.
  expect(await page.evaluate(() => window.isSame)).toBe(true);
  expect(Math.abs((await position()) - top)).toBeLessThan(3);
  const after = await visibleRange(page, "#chart-0");
  for (const end of [0, 1]) expect(Math.abs(after[end] - before[end])).toBeLessThan(0.05);
  await expect(head).toHaveAttribute("aria-sort", "descending");
  await expect(page.locator("#theme")).toHaveText("Colors: dark");
  expect(await page.evaluate(() => document.documentElement.dataset.theme)).toBe("dark");
  child.kill("SIGTERM");
  await expect(page.locator("#serving")).toHaveText("ended");
});

test("a timeline that gets more lines keeps its range", async ({ page, workdir, serve, record }) => {
  const { trace } = await record("forks", forks(workdir.path("go")));
  await openAt(page, (await serve(trace)).url);
  const lines = page.locator("#chart-0 .u-legend .u-series", { hasText: /^python/ });
  await expect(lines).toHaveCount(1);
  const zoomIn = page.locator("#chart-0").getByRole("button", { name: "Zoom in" });
  // Waits for enough data to zoom.
  await expect(page.locator("#serving")).toHaveText(/^live, [1-9]/);
  await zoomIn.click();
  const before = await visibleRange(page, "#chart-0");
  await zoomIn.focus();
  workdir.write("go", "");
  await expect(lines).toHaveCount(2);
  await expect(zoomIn).toBeFocused();
  const after = await visibleRange(page, "#chart-0");
  for (const end of [0, 1]) expect(Math.abs(after[end] - before[end])).toBeLessThan(0.05);
});

test("a timeline that is added later shows the visible range, without values before its start", async ({ page, workdir, serve, record }) => {
  const { trace } = await record("late", GROWS);
  await openAt(page, (await serve(trace)).url);
  const title = page.locator("#chart-0 h2");
  await expect(title).toHaveText("Resident memory");
  // Waits for enough data to zoom.
  await expect(page.locator("#serving")).toHaveText(/^live, [1-9]/);
  await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
  await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
  await expect.poll(() => new URL(page.url()).hash).toMatch(/^#from=[\d.]+&to=[\d.]+$/);
  // The address has the exact range.
  const before = new URL(page.url()).hash.match(/[\d.]+/g).map(Number);
  // Allocations start only now.
  const [status] = await once(workdir.startOther("floodmark-writer", trace, "2", "2000"), "exit");
  expect(status).toBe(0);
  await expect(title).toHaveText("Live bytes");
  // The whole page fits the window, also when its timelines are replaced: what is beside them is not pushed out of it.
  expect(await page.evaluate(() => document.body.scrollWidth)).toBe(1280);
  const resident = page.locator("section", { has: page.locator("h2", { hasText: "Resident memory" }) }).last();
  for (const chart of ["#chart-0", `#${await resident.getAttribute("id")}`]) {
    const now = await visibleRange(page, chart);
    for (const end of [0, 1]) expect(Math.abs(now[end] - before[end]), chart).toBeLessThan(0.02);
  }
  await reveal(page.locator("#chart-0 .u-over"));
  await page.locator("#chart-0 .u-over").hover({ position: { x: 200, y: 60 } });
  await expect(page.locator("#chart-0 .u-legend .u-series", { hasText: "device" })).toHaveText(/^device-$/);
  expect(new URL(page.url()).hash).toMatch(/^#from=[\d.]+&to=[\d.]+(&chart=chart-\d+)?$/);
});

test("a served page of hostile text is inert", async ({ page, serve, record }) => {
  const hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
  const script = `import time\nprint("step 3 ${hostile}\\x1b[31m\\x00\\u202e", flush=True)\ntime.sleep(20)`;
  const { trace } = await record("evil <img src=x onerror=alert(3)>\u202e", script);
  await openAt(page, (await serve(trace)).url);
  await expect(page.locator(".output p").first()).toContainText(hostile);
  expect(await page.locator("img, iframe, #page script, [onerror]").count()).toBe(0);
  expect(await page.locator("#page").textContent()).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u202a-\u202e]/);
});

test("a view of the whole time grows with the recording", async ({ page, serve, record }) => {
  const { trace } = await record("whole", GROWS);
  await openAt(page, (await serve(trace)).url);
  const [, end] = await visibleRange(page, "#chart-0");
  await expect.poll(async () => (await visibleRange(page, "#chart-0"))[1]).toBeGreaterThan(end + 3);
});

test("zooming shows single events", async ({ page, workdir, serve }) => {
  const { url } = await serve(workdir.write("many.csv", many(60_000)));
  await openAt(page, url);
  const note = page.locator("#chart-0 > .note").last();
  await expect(note).toContainText("Reduced");
  const range = page.waitForResponse((answer) => answer.url().includes("/api/range"));
  const zoom = page.locator("#chart-0").getByRole("button", { name: "Zoom in" });
  for (let times = 0; times < 11; times++) await zoom.click();
  expect((await range).status()).toBe(200);
  await expect(note).toContainText("Every change is drawn.");
  // Sixty seconds, halved eleven times, are thirty events.
  const [from, to] = await visibleRange(page, "#chart-0");
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

test("any instant equals the output of the command", async ({ page, workdir, serve }) => {
  const input = workdir.write("any.csv", many(60_000));
  await openAt(page, (await serve(input)).url);
  const over = page.locator("#chart-0 .u-over");
  const { width } = await over.boundingBox();
  const answer = page.waitForResponse((answer) => answer.url().includes("/api/snapshots"));
  await over.click({ position: { x: Math.round(width * 0.37), y: 60 } });
  const at = Number(new URL((await answer).url()).searchParams.get("at"));
  await expect(page.locator("#instant")).not.toHaveText("Loading …");
  await agrees(page, workdir.json("watermark", input, "--at", `+${at}ns`));
});

test("a request is cancelled when another instant is selected", async ({ page, workdir, serve }) => {
  await openAt(page, (await serve(workdir.write("picks.csv", many(60_000)))).url);
  // The first request is never answered.
  await page.route(/api\/snapshots/, () => undefined, { times: 1 });
  const over = page.locator("#chart-0 .u-over");
  const { width } = await over.boundingBox();
  const pick = (share) => over.click({ position: { x: Math.round(width * share), y: 60 } });
  const cancelled = page.waitForEvent("requestfailed", (request) => request.url().includes("/api/snapshots"));
  await pick(0.3);
  await expect(page.locator("#instant")).toHaveText("Loading …");
  await pick(0.6);
  await cancelled;
  await expect(page.locator("#instant")).toHaveText(/^At /);
});

/** Asserts that a page shows exactly the blocks of the command. */
async function agrees(page, expected) {
  const shown = (await rowsOf(page.locator("#live"))).map(([bytes, address]) => `${address} ${bytes}`);
  const wanted = expected.blocks.map(({ address, bytes }) => `${address} ${bytes.toLocaleString("en-US")} bytes`);
  expect(shown.sort()).toEqual(wanted.sort());
  const held = await rowsOf(page.locator("#held"));
  const sum = held.reduce((sum, [, bytes]) => sum + Number(bytes.replaceAll(",", "").replace(" bytes", "")), 0);
  expect(sum, "bytes of all holders").toBe(expected.reported_bytes);
}

/** Returns the output of the command that the page shows. */
async function commandOutput(page, workdir, trace) {
  const command = await page.locator("#travel .note code").textContent();
  return workdir.json("watermark", trace, "--at", /--at (\S+)$/.exec(command)[1]);
}

testWithWriter("any instant of a growing trace equals the output of the command", async ({ page, workdir, serve, write }) => {
  const { trace, more } = await write("allocations");
  const { url } = await serve(trace);
  await openAt(page, url);
  await expect(page.locator("#serving")).toHaveText(/^live/);
  await expect(page.locator("#travel")).toHaveCount(0);
  const over = page.locator("#chart-0 .u-over");
  const { width } = await over.boundingBox();
  const pick = (share, modifiers = []) => over.click({ position: { x: Math.round(width * share), y: 60 }, modifiers });
  const instant = page.locator("#instant");
  // Of two quick selections, the second is shown.
  const requests = [];
  page.on("request", (request) => request.url().includes("/api/snapshots") && requests.push(request));
  await pick(0.2);
  await pick(0.6);
  await expect(instant).toHaveText(/^At /);
  const latest = () => Number(new URL(requests.at(-1).url()).searchParams.get("at").split(",").at(-1));
  const lead = page.locator("#snapshots-note");
  await expect(lead).toContainText("Exactly this instant;");
  await expect(lead).not.toContainText("kept");
  await expect(page.getByRole("tab", { name: "Flame graph" })).toHaveCount(1);
  await agrees(page, workdir.json("watermark", trace, "--at", `+${latest()}ns`));
  await agrees(page, await commandOutput(page, workdir, trace));
  // Both buttons work without stored snapshots.
  const settled = async (act) => {
    const answer = page.waitForResponse((answer) => answer.url().includes("/api/snapshots"));
    await act();
    await (await answer).finished();
    await expect(instant).not.toHaveText("Loading …");
  };
  await settled(() => page.getByRole("button", { name: "Highest in view" }).click());
  const highest = await commandOutput(page, workdir, trace);
  expect(highest.reported_bytes).toBeGreaterThan(0);
  await agrees(page, highest);
  await expect(page.getByRole("button", { name: "Go to peak" })).toHaveCount(0);
  await settled(() => page.getByRole("button", { name: "Compare ends of view" }).click());
  await expect(instant).toHaveText(/^From A at .*, to B at /);
  const times = new URL(requests.at(-1).url()).searchParams.get("at").split(",").map(Number);
  expect(times).toHaveLength(2);
  expect(times[1]).toBeGreaterThan(times[0]);
  await page.getByRole("button", { name: "Stop comparing" }).click();
  // The selection stays when the trace grows.
  const before = await instant.textContent();
  const grown = page.waitForResponse((answer) => answer.url().includes("/api/document"));
  await more();
  await (await grown).finished();
  await expect(instant).toHaveText(before);
});

testWithWriter("a comparison is kept when the recording ends", async ({ page, workdir, serve, write }) => {
  const { trace, child } = await write("ends");
  await openAt(page, (await serve(trace)).url);
  const over = page.locator("#chart-0 .u-over");
  const { width } = await over.boundingBox();
  await over.click({ position: { x: Math.round(width * 0.4), y: 60 } });
  const instant = page.locator("#instant");
  await expect(instant).toHaveText(/^At /);
  const at = /--at (\S+)$/.exec(await page.locator("#travel .note code").textContent())[1];
  const before = workdir.json("watermark", trace, "--at", at);
  child.kill("SIGKILL");
  await expect(page.locator("#serving")).toHaveText("ended");
  const peak = page.getByRole("button", { name: "Go to peak" });
  await expect(peak).toHaveCount(1);
  await page.getByRole("button", { name: "Compare from here" }).click();
  await peak.click();
  await expect(instant).toHaveText(/^From A at .*, to B at /);
  const blocks = before.reported_blocks;
  await expect(instant).toHaveText(new RegExp(`^From A at [^,]*, [^,]* in ${blocks} blocks?, to B`));
});

testWithWriter("a failed first request shows its reason", async ({ browser, serve, write }) => {
  const { trace } = await write("unanswered");
  const { url, server } = await serve(trace);
  const page = await browser.newPage();
  await openAt(page, url);
  await expect(page.locator("#chart-0 .u-over")).toBeVisible();
  server.kill("SIGKILL");
  await once(server, "exit");
  await page.locator("#chart-0 .u-over").click({ position: { x: 200, y: 60 } });
  await expect(page.getByText(/^The server did not answer: /)).toBeVisible();
  await page.close();
});

test("many pages of one server can be open at once", async ({ context, workdir, serve }) => {
  const { url } = await serve(workdir.write("tabs.csv", many(300)));
  const pages = [];
  for (let at = 0; at < 8; at++) {
    const page = await context.newPage();
    pages.push(page);
    await openAt(page, url);
    await expect(page.locator("#serving")).toHaveText("ended");
  }
  for (const page of pages) await page.close();
});

test("a hidden page closes its connection and catches up later", async ({ page, serve, record }) => {
  const { trace } = await record("unseen", GROWS);
  await openAt(page, (await serve(trace)).url);
  await expect(page.locator("#serving")).toHaveText(/^live/);
  const setHidden = (hidden) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  const ended = page.waitForEvent("requestfailed", (request) => request.url().includes("/api/events"));
  await setHidden(true);
  await ended;
  const lead = await page.locator(".lead").textContent();
  const opened = page.waitForRequest((request) => request.url().includes("/api/events"));
  await setHidden(false);
  await opened;
  await expect(page.locator(".lead")).not.toHaveText(lead);
});

test("a request without the token is told where to find it", async ({ browser, workdir, serve }) => {
  const { url } = await serve(workdir.write("short.csv", many(30)));
  const page = await browser.newPage();
  const answer = await page.goto(url.replace(/.$/, (last) => (last === "0" ? "1" : "0")));
  expect(answer.status()).toBe(403);
  await expect(page.locator("body")).toContainText("Open the address that 'floodmark serve' printed");
  await page.close();
});

test("a page shows that its server is gone", async ({ browser, workdir, serve }) => {
  const { url, server } = await serve(workdir.write("gone.csv", many(300)));
  const page = await browser.newPage();
  await openAt(page, url);
  await expect(page.locator("#serving")).toHaveText("ended");
  server.kill("SIGTERM");
  await once(server, "exit");
  await expect(page.locator("#serving")).toHaveText("connection lost, reconnecting");
  await page.close();
});
