// Time travel: the blocks of an instant are those of `floodmark watermark --at`.

import { expect, documentOf, fixture, matchesGolden, open, pick, reveal, rowsOf, test, waves } from "./fixtures.mjs";

const inputs = {
  "an RMM log": (workdir) => workdir.write("rmm_log.dev0.csv", waves()),
  "a long RMM log": (workdir) => workdir.write("long_log.dev0.csv", waves(60_000)),
  "a PyTorch snapshot": () => fixture("torch/snapshot_torch2.11.pickle.gz"),
  "a Nsight Systems export": () => fixture("nsys/small_2025.3.sqlite"),
};

/** Returns the output of the command that the page shows. */
async function commandOutput(page, workdir, input) {
  const command = page.locator("#travel .note code");
  if ((await command.count()) === 0) return workdir.json("watermark", input);
  const at = /--at (\S+)$/.exec(await command.textContent())[1];
  return workdir.json("watermark", input, "--at", at);
}

const exact = (bytes) => `${bytes.toLocaleString("en-US")} bytes`;
const named = ({ address, bytes, thread, stream }) => [address, exact(bytes), String(thread), stream].join(" ");

/** Asserts that the blocks and sums on the page are those of the command. */
async function agrees(page, workdir, input) {
  const expected = await commandOutput(page, workdir, input);
  const shown = (await rowsOf(page.locator("#live"))).map(([bytes, address, , thread, stream]) => [address, bytes, thread, stream].join(" "));
  const { limit } = (await documentOf(page)).snapshots;
  const wanted = expected.blocks.map(named);
  if (limit === null || expected.blocks.length <= limit) expect(shown.sort()).toEqual(wanted.sort());
  else {
    expect(shown.length).toBe(limit);
    for (const block of shown) expect(wanted).toContain(block);
  }
  const blocks = expected.reported_blocks.toLocaleString("en-US");
  await expect(page.locator("#instant")).toContainText(new RegExp(` in ${blocks} blocks?\\.$`));
  const held = await rowsOf(page.locator("#held"));
  const sum = held.reduce((sum, [, bytes]) => sum + Number(bytes.replaceAll(",", "").replace(" bytes", "")), 0);
  expect(sum, "bytes of all holders").toBe(expected.reported_bytes);
  return expected;
}

for (const [what, make] of Object.entries(inputs)) {
  test(`live blocks of ${what} are those of watermark --at`, async ({ page, workdir }) => {
    test.slow();
    const input = make(workdir);
    await open(page, workdir.report(input));
    const peak = await agrees(page, workdir, input);
    expect(peak.reported_bytes).toBe(workdir.json("stats", input).peak_bytes);
    for (const share of [0.13, 0.5, 0.87]) {
      await pick(page, share);
      await agrees(page, workdir, input);
    }
    for (const button of ["Later", "Later", "Earlier"]) {
      await page.getByRole("button", { name: button, exact: true }).click();
      await agrees(page, workdir, input);
    }
    await page.getByRole("button", { name: "Go to peak", exact: true }).click();
    expect((await agrees(page, workdir, input)).reported_bytes).toBe(peak.reported_bytes);
  });
}

test("a comparison lists the blocks live at B but not at A", async ({ page, workdir }) => {
  const input = inputs["an RMM log"](workdir);
  await open(page, workdir.report(input));
  const at = {};
  for (const [letter, share] of [["A", 0.2], ["B", 0.6]]) {
    await pick(page, share);
    at[letter] = await commandOutput(page, workdir, input);
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
  await agrees(page, workdir, input);
});

test("a click on the address map selects its instant", async ({ page, workdir }) => {
  const input = inputs["an RMM log"](workdir);
  await open(page, workdir.report(input));
  const map = page.locator("#addresses-0 canvas");
  await reveal(map);
  await map.scrollIntoViewIfNeeded();
  await map.click({ position: { x: 500, y: 100 } });
  await expect(page.locator("#addresses-0 .description")).toHaveText(/^\+.* s: .* of .* at 0x[0-9a-f]+ in use$/);
  await agrees(page, workdir, input);
  await map.focus();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("Enter");
  await agrees(page, workdir, input);
});

test("appearance of snapshots", async ({ page, workdir }) => {
  await open(page, workdir.report(inputs["a Nsight Systems export"]()));
  await pick(page, 0.4);
  await matchesGolden(page, "snapshot", page.locator("#work"));
  await matchesGolden(page, "addresses", page.locator("#addresses-0 .addresses"));
  await page.getByRole("tab", { name: "Flame graph" }).click();
  await page.getByRole("button", { name: "Compare from here" }).click();
  await page.getByRole("button", { name: "Go to peak" }).click();
  await matchesGolden(page, "comparison", page.locator("#work"));
  await matchesGolden(page, "timeline-compared", page.locator("#chart-0 .chart"));
});
