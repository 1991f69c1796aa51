// Time travel: what a page shows of an instant is what the command line says of it, block by block.

import { expect, documentOf, fixture, looks, open, pick, rowsOf, test, waves } from "./reader.mjs";

const inputs = {
  "a log of RMM": (desk) => desk.write("rmm_log.dev0.csv", waves()),
  "a long log of RMM": (desk) => desk.write("long_log.dev0.csv", waves(60_000)),
  "a snapshot of torch": () => fixture("torch/snapshot_torch2.11.pickle.gz"),
  "an export of Nsight Systems": () => fixture("nsys/small_2025.3.sqlite"),
};

/** What the command that the page names answers. */
async function answer(page, desk, input) {
  const command = page.locator("#travel .note code");
  if ((await command.count()) === 0) return desk.json("watermark", input);
  const at = /--at (\S+)$/.exec(await command.textContent())[1];
  return desk.json("watermark", input, "--at", at);
}

const exact = (bytes) => `${bytes.toLocaleString("en-US")} bytes`;
const named = ({ address, bytes, thread, stream }) => [address, exact(bytes), String(thread), stream].join(" ");

/** Asserts that all blocks shown are those of the command, and their sum the one that the page states. */
async function agrees(page, desk, input) {
  const told = await answer(page, desk, input);
  const shown = (await rowsOf(page.locator("#live"))).map(([bytes, address, , thread, stream]) => [address, bytes, thread, stream].join(" "));
  const { limit } = (await documentOf(page)).moments;
  const wanted = told.blocks.map(named);
  if (limit === null || told.blocks.length <= limit) expect(shown.sort()).toEqual(wanted.sort());
  else {
    expect(shown.length).toBe(limit);
    for (const block of shown) expect(wanted).toContain(block);
  }
  const blocks = told.reported_blocks.toLocaleString("en-US");
  await expect(page.locator("#instant")).toContainText(new RegExp(` in ${blocks} blocks?\\.$`));
  const held = await rowsOf(page.locator("#held"));
  const sum = held.reduce((sum, [, bytes]) => sum + Number(bytes.replaceAll(",", "").replace(" bytes", "")), 0);
  expect(sum, "bytes of all holders").toBe(told.reported_bytes);
  return told;
}

for (const [what, make] of Object.entries(inputs)) {
  test(`live blocks of ${what} are those of watermark --at`, async ({ page, desk }) => {
    test.slow();
    const input = make(desk);
    await open(page, desk.report(input));
    const peak = await agrees(page, desk, input);
    expect(peak.reported_bytes).toBe(desk.json("stats", input).peak_bytes);
    for (const share of [0.13, 0.5, 0.87]) {
      await pick(page, share);
      await agrees(page, desk, input);
    }
    for (const button of ["Later", "Later", "Earlier"]) {
      await page.getByRole("button", { name: button, exact: true }).click();
      await agrees(page, desk, input);
    }
    await page.getByRole("button", { name: "At the peak", exact: true }).click();
    expect((await agrees(page, desk, input)).reported_bytes).toBe(peak.reported_bytes);
  });
}

test("a difference is what is live at B and was not at A", async ({ page, desk }) => {
  const input = inputs["a log of RMM"](desk);
  await open(page, desk.report(input));
  const at = {};
  for (const [letter, share] of [["A", 0.2], ["B", 0.6]]) {
    await pick(page, share);
    at[letter] = await answer(page, desk, input);
  }
  await pick(page, 0.2);
  await page.getByRole("button", { name: "Compare from here" }).click();
  await pick(page, 0.6);
  const before = new Set(at.A.blocks.map((block) => `${block.address} ${block.time_ns}`));
  const fresh = at.B.blocks.filter((block) => !before.has(`${block.address} ${block.time_ns}`)).map(named);
  const shown = (await rowsOf(page.locator("#live"))).map(([bytes, address, , thread, stream]) => [address, bytes, thread, stream].join(" "));
  expect(shown.sort()).toEqual(fresh.sort());
  await expect(page.locator("#instant")).toHaveText(/^From A at .*, to B at .*: [+−]/);
  await page.getByRole("button", { name: "Stop comparing" }).click();
  await agrees(page, desk, input);
});

test("the map of addresses picks the instant that is clicked", async ({ page, desk }) => {
  const input = inputs["a log of RMM"](desk);
  await open(page, desk.report(input));
  const map = page.locator("#addresses-0 canvas");
  await map.scrollIntoViewIfNeeded();
  await map.click({ position: { x: 500, y: 100 } });
  await expect(page.locator("#addresses-0 .says")).toHaveText(/^\+.* s: .* of .* from 0x[0-9a-f]+ on is taken$/);
  await agrees(page, desk, input);
  await map.focus();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("Enter");
  await agrees(page, desk, input);
});

test("how instants look", async ({ page, desk }) => {
  await open(page, desk.report(inputs["an export of Nsight Systems"]()));
  await pick(page, 0.4);
  await looks(page, "instant", page.locator("#travel"));
  await looks(page, "addresses", page.locator("#addresses-0 .addresses"));
  await page.getByRole("button", { name: "Compare from here" }).click();
  await page.getByRole("button", { name: "At the peak" }).click();
  await looks(page, "difference", page.locator("#travel"));
  await looks(page, "timeline-compared", page.locator("#chart-0 .chart"));
});
