// What is drawn equals the exact series: values under the pointer, and pixels of the steps, on random logs.

import { documentOf, expect, open, test } from "./fixtures.mjs";

/** Returns a random log with its exact live bytes: [time in seconds, bytes] after each event. */
function randomLog(seed, events) {
  let state = seed;
  const random = (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 4294967296) * below);
  };
  const lines = ["Thread,Time,Action,Pointer,Size,Stream"];
  const [live, exact] = [[], []];
  let [us, sum] = [0, 0];
  for (let at = 0; at < events; at++) {
    us += 1000 + random(1_800_000);
    const time = `10:00:${String(Math.floor(us / 1e6) % 60).padStart(2, "0")}.${String(us % 1e6).padStart(6, "0")}`;
    if (us >= 59e6) break;
    if (live.length > 0 && random(2) === 0) {
      const [block] = live.splice(random(live.length), 1);
      lines.push(`1,${time},free,${block.pointer},${block.size},0x0`);
      sum -= block.size;
    } else {
      const block = { pointer: `0x${(0x7f0000000000 + at * 0x10000000).toString(16)}`, size: 1 << (10 + random(16)) };
      live.push(block);
      lines.push(`1,${time},allocate,${block.pointer},${block.size},0x0`);
      sum += block.size;
    }
    exact.push([us / 1e6, sum]);
  }
  const first = exact[0][0];
  return { log: `${lines.join("\n")}\n`, exact: exact.map(([time, bytes]) => [time - first, bytes]) };
}

const bytesAt = (exact, time) => exact.findLast(([from]) => from <= time + 1e-9)?.[1] ?? 0;

/** Returns a figure as the page writes it. */
function text(count) {
  if (count < 1024) return `${count} B`;
  const units = ["B", "KiB", "MiB", "GiB"];
  let power = Math.floor(Math.log2(count) / 10);
  if (count / 1024 ** power >= 999.95) power++;
  const value = count / 1024 ** power;
  return `${value.toFixed(value < 10 ? 2 : 1)} ${units[power]}`;
}

for (const seed of [1, 2, 3]) {
  test(`random log ${seed}`, async ({ page, workdir }) => {
    const { log, exact } = randomLog(seed * 7919, 60);
    await open(page, workdir.report(workdir.write(`random${seed}.csv`, log)));
    const { charts } = await documentOf(page);
    expect(charts[0].peak.bytes).toBe(Math.max(...exact.map(([, bytes]) => bytes)));
    await page.locator("#stacked").selectOption("nothing");
    for (const zooms of [0, 2]) {
      for (let times = 0; times < zooms; times++) await page.locator("#chart-0").getByRole("button", { name: "Zoom in" }).click();
      await values(page, exact);
      await pixels(page, exact, charts[0].peak);
    }
  });
}

/** Compares the values of the legend at many places. */
async function values(page, exact) {
  const over = page.locator("#chart-0 .u-over");
  const { x, y, width } = await over.boundingBox();
  const legend = page.locator("#chart-0 .u-legend");
  for (let at = 3; at < width - 2; at += 37) {
    await page.mouse.move(x + at, y + 40);
    const shown = await legend.textContent();
    const time = Number(/\+([\d.]+) s/.exec(shown)[1]);
    // Where the line changes within what the time is rounded to, either value is right.
    const right = [time - 6e-4, time, time + 6e-4].map((near) => text(bytesAt(exact, near)));
    const value = /(?:device|live bytes):?\s*([\d.]+ \w+)/.exec(shown)?.[1];
    expect(right, `${shown} at ${time}`).toContain(value);
  }
}

/** Compares the height of the line in the middle of long steps with their bytes. */
async function pixels(page, exact, peak) {
  await page.mouse.move(0, 0);
  const drawn = await page.locator("#chart-0 canvas").evaluate((canvas) => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data, width, height } = copy.getImageData(0, 0, canvas.width, canvas.height);
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = "var(--series-0)";
    const wanted = getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).map(Number);
    probe.remove();
    const over = document.querySelector("#chart-0 .u-over").getBoundingClientRect();
    const box = canvas.getBoundingClientRect();
    const isLine = (x, y) => wanted.every((part, by) => Math.abs(part - data[(y * width + x) * 4 + by]) < 14);
    // The uppermost pixel of the line in each column.
    const tops = [];
    for (let x = 0; x < over.width; x++) {
      let top = -1;
      for (let y = 0; y < height && top < 0; y++) if (isLine(Math.round(over.left - box.left) + x, y)) top = y - Math.round(over.top - box.top);
      tops.push(top);
    }
    return { tops, height: over.height, width: over.width };
  });
  const legend = page.locator("#chart-0 .u-legend");
  const over = await page.locator("#chart-0 .u-over").boundingBox();
  const timeAt = async (at) => {
    await page.mouse.move(over.x + at, over.y + 40);
    return Number(/\+([\d.]+) s/.exec(await legend.textContent())[1]);
  };
  const [from, to] = [await timeAt(1), await timeAt(drawn.width - 2)];
  const perPixel = (to - from) / (drawn.width - 3);
  const timeOf = (x) => from + (x - 1) * perPixel;
  const visible = exact.filter(([time]) => time >= timeOf(0) && time <= timeOf(drawn.width)).map(([, bytes]) => bytes);
  const highest = Math.max(...visible, bytesAt(exact, timeOf(0)));
  let compared = 0;
  for (let x = 8; x < drawn.width - 8; x++) {
    // Only where the line is flat for some pixels, so that no edge is near.
    const around = [-4, -2, 0, 2, 4].map((by) => bytesAt(exact, timeOf(x + by)));
    if (around.some((bytes) => bytes !== around[0])) continue;
    const isPicked = Math.abs(x - drawn.tops.indexOf(0)) < 3;
    const heightOf = (bytes) => drawn.height * (1 - bytes / (highest * 1.14));
    const expected = heightOf(around[0]);
    // The dot of the peak and the outline of its label cover lines that are as high as the peak.
    const besidePeak = Math.abs(x - (1 + (peak.time / 1e9 - from) / perPixel));
    const isCovered = besidePeak < 6 || (besidePeak < 125 && expected < heightOf(peak.bytes) + 6);
    if (isPicked || isCovered || drawn.tops[x] <= 2) continue;
    compared++;
    expect(Math.abs(drawn.tops[x] - expected), `column ${x}: ${drawn.tops[x]} instead of ${expected}`).toBeLessThan(2);
  }
  expect(compared).toBeGreaterThan(100);
}
