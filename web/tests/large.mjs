// Measures the report of a large trace: time to write it, its size, and time to show it.
//
//     npm run large                   20 million events, five repetitions
//     npm run large -- 1000000 3      fewer of both
//
// Needs a release build (`cargo build --release -p floodmark`, or FLOODMARK) and Chromium. The log is kept in
// target/large, because writing it takes longest. Exits with 1 if a value exceeds its limit or the peak in the report
// differs from that of `floodmark stats`.

import { execFileSync } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, renameSync, statSync, writeFileSync, writeSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "@playwright/test";

const LIMITS = { "report, seconds": 8, "file, MB": 6, "shown after, seconds": 1, "zoom, seconds": 0.1 };
const STEP_US = 5;

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const program = resolve(process.env.FLOODMARK ?? join(root, "target/release/floodmark"));
const events = Number(process.argv[2] ?? 20_000_000);
const repeat = Number(process.argv[3] ?? 5);
const folder = join(root, "target/large");

/** Returns a reproducible random number generator. */
function random(seed) {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 4294967296) * below);
  };
}

const two = (number) => String(number).padStart(2, "0");

function clock(us) {
  const seconds = Math.floor(us / 1e6);
  const time = `${two(Math.floor(seconds / 3600))}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return `${time}.${String(us % 1e6).padStart(6, "0")}`;
}

/** Writes an RMM log: a thousand live blocks on average, in waves, of four threads on eight streams. */
function writeLog(path) {
  const next = random(11);
  const live = [];
  const file = openSync(path, "w");
  let lines = ["Thread,Time,Action,Pointer,Size,Stream"];
  for (let at = 0; at < events; at++) {
    const time = clock(at * STEP_US);
    const wanted = 1000 + 900 * Math.sin((at / events) * 20);
    if (live.length > wanted && next(3) > 0) {
      const place = next(live.length);
      const block = live[place];
      live[place] = live[live.length - 1];
      live.pop();
      lines.push(`${block.thread},${time},free,${block.pointer},${block.size},${block.stream}`);
    } else {
      const pointer = `0x${(0x7f0000000000 + (at % 4_000_000) * 0x400000).toString(16)}`;
      const block = { thread: 100 + next(4), pointer, size: (1 + next(16)) * (256 << next(14)), stream: `0x${next(8)}` };
      live.push(block);
      lines.push(`${block.thread},${time},allocate,${block.pointer},${block.size},${block.stream}`);
    }
    if (lines.length >= 100_000) {
      writeSync(file, `${lines.join("\n")}\n`);
      lines = [];
    }
  }
  if (lines.length > 0) writeSync(file, `${lines.join("\n")}\n`);
  closeSync(file);
}

/** Returns the trace of all events; writes it if it does not exist. */
function trace() {
  const made = join(folder, `${events}.flood`);
  const done = join(folder, `${events}.done`);
  if (existsSync(done)) return made;
  mkdirSync(folder, { recursive: true });
  const log = join(folder, `${events}.csv`);
  if (!existsSync(log)) {
    console.log(`writing a log of ${events} events …`);
    writeLog(`${log}.part`);
    renameSync(`${log}.part`, log);
  }
  execFileSync(program, ["import", log, "-o", made, "--force", "--quiet"]);
  writeFileSync(done, "");
  return made;
}

const elapsed = (from) => Number(process.hrtime.bigint() - from) / 1e9;
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

/** Returns the seconds from the start of navigation until the page is complete, and those of a zoom until it is drawn. */
async function timesOf(file) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"],
  });
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
    // Measured in the page, so that polling here adds nothing.
    await page.addInitScript(() => {
      new MutationObserver(() => {
        if (document.documentElement?.dataset.ready) window.readyAt ??= performance.now();
      }).observe(document, { attributes: true, subtree: true, attributeFilter: ["data-ready"] });
    });
    await page.goto(pathToFileURL(file).href);
    await page.waitForSelector("html[data-ready=true]", { timeout: 120_000 });
    const shown = (await page.evaluate(() => window.readyAt)) / 1000;
    const zooms = [];
    for (let times = 0; times < 5; times++) {
      zooms.push(
        await page.evaluate(async () => {
          const from = performance.now();
          [...document.querySelectorAll("#chart-0 .tools button")].find(({ textContent }) => textContent === "Zoom in").click();
          // The second frame begins after the first was drawn.
          for (let frames = 0; frames < 2; frames++) await new Promise(requestAnimationFrame);
          return (performance.now() - from) / 1000;
        }),
      );
    }
    return { shown, zoom: median(zooms) };
  } finally {
    await browser.close();
  }
}

const input = trace();
const output = join(folder, "report.html");
const figures = { "report, seconds": [], "file, MB": [], "shown after, seconds": [], "zoom, seconds": [] };
for (let round = 0; round < repeat; round++) {
  const from = process.hrtime.bigint();
  execFileSync(program, ["report", input, "-o", output, "--force", "--quiet"]);
  figures["report, seconds"].push(elapsed(from));
  figures["file, MB"].push(statSync(output).size / 1e6);
  const { shown, zoom } = await timesOf(output);
  figures["shown after, seconds"].push(shown);
  figures["zoom, seconds"].push(zoom);
}
for (const [name, list] of Object.entries(figures)) {
  const isOver = median(list) > LIMITS[name];
  if (isOver) process.exitCode = 1;
  const spread = `${Math.min(...list).toFixed(2)} to ${Math.max(...list).toFixed(2)}`;
  console.log(`${name}: ${median(list).toFixed(2)} (${spread}; at most ${LIMITS[name]})${isOver ? ", exceeded" : ""}`);
}
const { peak_bytes } = JSON.parse(execFileSync(program, ["stats", input, "--json"], { encoding: "utf8" }));
const data = /id="floodmark-data">(.*?)<\/script>/s.exec(readFileSync(output, "utf8"))[1];
const shown = JSON.parse(data).charts[0].peak.bytes;
console.log(`peak in the report: ${shown}, in stats: ${peak_bytes}`);
if (shown !== peak_bytes) process.exitCode = 1;
