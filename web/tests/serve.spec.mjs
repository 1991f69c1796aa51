// Pages that a server hands out: they follow a recording, show single events, and are for nobody else.

import { once } from "node:events";
import { expect, rowsOf, serving, test as base } from "./reader.mjs";

const test = serving(base).extend({
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
/** A trace of allocations that grows while its writer is read from, and stays live until the test ends. */
const testWithWriter = test.extend({
  write: async ({ desk }, use) => {
    const started = [];
    await use(async (name) => {
      const trace = desk.path(`${name}.flood`);
      // It says how far it is, and waits when nobody listens.
      const child = desk.startOther("floodmark-writer", trace, "6", "1000000", "--ack");
      started.push(child);
      await once(child, "spawn");
      let heard = 0;
      const more = async () => {
        const wanted = heard + 100;
        while (heard < wanted) {
          const chunk = child.stdout.read();
          if (chunk) heard += chunk.toString().split("\n").length - 1;
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

/** A second process comes when there is a file of this name. */
const forks = (go) => `
import os, subprocess, sys, time
print("alone", flush=True)
while not os.path.exists(${JSON.stringify(go)}):
    time.sleep(0.05)
subprocess.run([sys.executable, "-c", "import time; held = bytearray(30_000_000); time.sleep(60)"])
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
  const at = async (x) => {
    await over.hover({ position: { x, y: 60 }, timeout: 2000 });
    return Number(/\+([\d.]+) s/.exec(await page.locator(`${chart} .u-legend`).textContent())[1]);
  };
  let seen;
  // A timeline that grows may be drawn anew in between.
  await expect(async () => {
    const { width } = await over.boundingBox({ timeout: 2000 });
    seen = [await at(1), await at(width - 2)];
  }).toPass({ timeout: 60_000 });
  return seen;
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
  // What one reads, wherever that is in the page.
  const reads = () => page.evaluate(() => document.querySelector("#processes").getBoundingClientRect().top);
  await page.evaluate(() => {
    window.isSame = true;
    document.querySelector("#processes").scrollIntoView();
  });
  const top = await reads();
  await expect(page.locator(".lead")).not.toHaveText(lead);
  await expect.poll(() => page.locator(".output p").count()).toBeGreaterThan(lines);
  // It stays in place, though what is above it grows.
  expect(await page.evaluate(() => window.isSame)).toBe(true);
  expect(Math.abs((await reads()) - top)).toBeLessThan(3);
  const after = await view(page, "#chart-0");
  for (const end of [0, 1]) expect(Math.abs(after[end] - seen[end])).toBeLessThan(0.05);
  await expect(head).toHaveAttribute("aria-sort", "descending");
  await expect(page.locator("#theme")).toHaveText("Colors: dark");
  expect(await page.evaluate(() => document.documentElement.dataset.theme)).toBe("dark");
  child.kill("SIGTERM");
  await expect(page.locator("#serving")).toHaveText("ended");
});

test("a timeline with more lines than before shows what was in sight", async ({ page, desk, serve, record }) => {
  const { trace } = await record("forks", forks(desk.path("go")));
  await openAt(page, (await serve(trace)).url);
  const lines = page.locator("#chart-0 .u-legend .u-series", { hasText: /^python/ });
  await expect(lines).toHaveCount(1);
  const zoomIn = page.locator("#chart-0").getByRole("button", { name: "Zoom in" });
  // Enough to zoom into.
  await expect(page.locator("#serving")).toHaveText(/^live, [1-9]/);
  await zoomIn.click();
  const seen = await view(page, "#chart-0");
  await zoomIn.focus();
  desk.write("go", "");
  await expect(lines).toHaveCount(2);
  await expect(zoomIn).toBeFocused();
  const after = await view(page, "#chart-0");
  for (const end of [0, 1]) expect(Math.abs(after[end] - seen[end])).toBeLessThan(0.05);
});

test("a timeline that comes later shows the part that is in sight, and says nothing of what was before it", async ({ page, desk, serve, record }) => {
  const { trace } = await record("late", GROWS);
  await openAt(page, (await serve(trace)).url);
  const title = page.locator("#chart-0 h2");
  await expect(title).toHaveText("Resident memory");
  // Enough to zoom into.
  await expect(page.locator("#serving")).toHaveText(/^live, [1-9]/);
  await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
  await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
  await expect.poll(() => new URL(page.url()).hash).toMatch(/^#from=[\d.]+&to=[\d.]+$/);
  const seen = await view(page, "#chart-0");
  // Allocations are recorded only now.
  const [status] = await once(desk.startOther("floodmark-writer", trace, "2", "2000"), "exit");
  expect(status).toBe(0);
  await expect(title).toHaveText("Live bytes");
  const resident = page.locator("section", { has: page.getByRole("heading", { name: "Resident memory" }) });
  for (const chart of ["#chart-0", `#${await resident.getAttribute("id")}`]) {
    const now = await view(page, chart);
    for (const end of [0, 1]) expect(Math.abs(now[end] - seen[end]), chart).toBeLessThan(0.05);
  }
  await page.locator("#chart-0 .u-over").hover({ position: { x: 200, y: 60 } });
  await expect(page.locator("#chart-0 .u-legend .u-series", { hasText: "device" })).toHaveText(/^device-$/);
  expect(new URL(page.url()).hash).toMatch(/^#from=[\d.]+&to=[\d.]+$/);
});

test("a served page of hostile text is inert", async ({ page, serve, record }) => {
  const says = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
  const script = `import time\nprint("step 3 ${says}\\x1b[31m\\x00\\u202e", flush=True)\ntime.sleep(20)`;
  const { trace } = await record("evil <img src=x onerror=alert(3)>\u202e", script);
  await openAt(page, (await serve(trace)).url);
  await expect(page.locator(".output p").first()).toContainText(says);
  expect(await page.locator("img, iframe, #page script, [onerror]").count()).toBe(0);
  expect(await page.locator("#page").textContent()).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u202a-\u202e]/);
});

test("a whole view grows with the recording", async ({ page, serve, record }) => {
  const { trace } = await record("whole", GROWS);
  await openAt(page, (await serve(trace)).url);
  const [, end] = await view(page, "#chart-0");
  await expect.poll(async () => (await view(page, "#chart-0"))[1]).toBeGreaterThan(end + 3);
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
  await expect(page.locator("#instant")).not.toHaveText("Looking …");
  await agrees(page, desk.json("watermark", input, "--at", `+${at}ns`));
});

test("an instant is given up when another one is picked", async ({ page, desk, serve }) => {
  await openAt(page, (await serve(desk.write("picks.csv", many(60_000)))).url);
  // The first answer never comes.
  await page.route(/api\/moment/, () => undefined, { times: 1 });
  const over = page.locator("#chart-0 .u-over");
  const { width } = await over.boundingBox();
  const pick = (share) => over.click({ position: { x: Math.round(width * share), y: 60 } });
  const givenUp = page.waitForEvent("requestfailed", (request) => request.url().includes("/api/moment"));
  await pick(0.3);
  await expect(page.locator("#instant")).toHaveText("Looking …");
  await pick(0.6);
  await givenUp;
  await expect(page.locator("#instant")).toHaveText(/^At /);
});

/** Asserts that a page shows exactly the blocks that the command told of. */
async function agrees(page, told) {
  const shown = (await rowsOf(page.locator("#live"))).map(([bytes, address]) => `${address} ${bytes}`);
  const wanted = told.blocks.map(({ address, bytes }) => `${address} ${bytes.toLocaleString("en-US")} bytes`);
  expect(shown.sort()).toEqual(wanted.sort());
  const held = await rowsOf(page.locator("#held"));
  const sum = held.reduce((sum, [, bytes]) => sum + Number(bytes.replaceAll(",", "").replace(" bytes", "")), 0);
  expect(sum, "bytes of all holders").toBe(told.reported_bytes);
}

/** What the command that the page names answers. */
async function commanded(page, desk, trace) {
  const command = await page.locator("#travel .note code").textContent();
  return desk.json("watermark", trace, "--at", /--at (\S+)$/.exec(command)[1]);
}

testWithWriter("any instant of a trace that grows is what the command says of it", async ({ page, desk, serve, write }) => {
  const { trace, more } = await write("allocations");
  const { url } = await serve(trace);
  await openAt(page, url);
  await expect(page.locator("#serving")).toHaveText(/^live/);
  await expect(page.locator("#travel")).toHaveCount(0);
  const over = page.locator("#chart-0 .u-over");
  const { width } = await over.boundingBox();
  const pick = (share, modifiers = []) => over.click({ position: { x: Math.round(width * share), y: 60 }, modifiers });
  const instant = page.locator("#instant");
  // Of two that are picked at once, the second is shown.
  const asked = [];
  page.on("request", (request) => request.url().includes("/api/moment") && asked.push(request));
  await pick(0.2);
  await pick(0.6);
  await expect(instant).toHaveText(/^At /);
  const latest = () => Number(new URL(asked.at(-1).url()).searchParams.get("at").split(",").at(-1));
  const lead = page.locator("#travel > .note").first();
  await expect(lead).toContainText("Exactly this instant;");
  await expect(lead).not.toContainText("kept");
  await expect(page.getByRole("link", { name: "Time travel" })).toHaveCount(1);
  await agrees(page, desk.json("watermark", trace, "--at", `+${latest()}ns`));
  await agrees(page, await commanded(page, desk, trace));
  // Highest and compared as far as the view goes, though no instants are kept.
  const settled = async (act) => {
    const answer = page.waitForResponse((answer) => answer.url().includes("/api/moment"));
    await act();
    await (await answer).finished();
    await expect(instant).not.toHaveText("Looking …");
  };
  await settled(() => page.getByRole("button", { name: "Highest in view" }).click());
  const highest = await commanded(page, desk, trace);
  expect(highest.reported_bytes).toBeGreaterThan(0);
  await agrees(page, highest);
  await expect(page.getByRole("button", { name: "At the peak" })).toHaveCount(0);
  await settled(() => page.getByRole("button", { name: "Span in view" }).click());
  await expect(instant).toHaveText(/^From A at .*, to B at /);
  const times = new URL(asked.at(-1).url()).searchParams.get("at").split(",").map(Number);
  expect(times).toHaveLength(2);
  expect(times[1]).toBeGreaterThan(times[0]);
  await page.getByRole("button", { name: "Stop comparing" }).click();
  // It stays when more comes.
  const before = await instant.textContent();
  const grown = page.waitForResponse((answer) => answer.url().includes("/api/document"));
  await more();
  await (await grown).finished();
  await expect(instant).toHaveText(before);
});

testWithWriter("what was compared stays where it was when the recording has ended", async ({ page, desk, serve, write }) => {
  const { trace, child } = await write("ends");
  await openAt(page, (await serve(trace)).url);
  const over = page.locator("#chart-0 .u-over");
  const { width } = await over.boundingBox();
  await over.click({ position: { x: Math.round(width * 0.4), y: 60 } });
  const instant = page.locator("#instant");
  await expect(instant).toHaveText(/^At /);
  const at = /--at (\S+)$/.exec(await page.locator("#travel .note code").textContent())[1];
  const before = desk.json("watermark", trace, "--at", at);
  child.kill("SIGKILL");
  await expect(page.locator("#serving")).toHaveText("ended");
  const peak = page.getByRole("button", { name: "At the peak" });
  await expect(peak).toHaveCount(1);
  await page.getByRole("button", { name: "Compare from here" }).click();
  await peak.click();
  await expect(instant).toHaveText(/^From A at .*, to B at /);
  const blocks = before.reported_blocks;
  await expect(instant).toHaveText(new RegExp(`^From A at [^,]*, [^,]* in ${blocks} blocks?, to B`));
});

testWithWriter("a first pick without an answer says why", async ({ browser, serve, write }) => {
  const { trace } = await write("unanswered");
  const { url, server } = await serve(trace);
  const page = await browser.newPage();
  await openAt(page, url);
  await expect(page.locator("#chart-0 .u-over")).toBeVisible();
  server.kill("SIGKILL");
  await once(server, "exit");
  await page.locator("#chart-0 .u-over").click({ position: { x: 200, y: 60 } });
  await expect(page.getByText(/^The server does not answer: /)).toBeVisible();
  await page.close();
});

test("many pages of one server can be open", async ({ context, desk, serve }) => {
  const { url } = await serve(desk.write("tabs.csv", many(300)));
  const pages = [];
  for (let at = 0; at < 8; at++) {
    const page = await context.newPage();
    pages.push(page);
    await openAt(page, url);
    await expect(page.locator("#serving")).toHaveText("ended");
  }
  for (const page of pages) await page.close();
});

test("a page that nobody sees takes no connection, and catches up", async ({ page, serve, record }) => {
  const { trace } = await record("unseen", GROWS);
  await openAt(page, (await serve(trace)).url);
  await expect(page.locator("#serving")).toHaveText(/^live/);
  const see = (hidden) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  const ended = page.waitForEvent("requestfailed", (request) => request.url().includes("/api/events"));
  await see(true);
  await ended;
  const lead = await page.locator(".lead").textContent();
  const opened = page.waitForRequest((request) => request.url().includes("/api/events"));
  await see(false);
  await opened;
  await expect(page.locator(".lead")).not.toHaveText(lead);
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
