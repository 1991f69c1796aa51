// Recompresses golden images to a third of their size: Chromium encodes for speed, and glyph edges have more shades than
// the comparison distinguishes. Shades are rounded by at most 4 of 255. `npm run golden` runs this last.

import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { crc32, deflateSync, inflateSync } from "node:zlib";

const golden = join(dirname(fileURLToPath(import.meta.url)), "golden");
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

function chunks(bytes) {
  const found = [];
  for (let at = 8; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at);
    found.push({ type: bytes.toString("latin1", at + 4, at + 8), data: bytes.subarray(at + 8, at + 8 + length) });
    at += 12 + length;
  }
  return found;
}

/** Returns the Paeth predictor of the PNG standard. */
function paeth(left, above, corner) {
  const [a, b, c] = [Math.abs(above - corner), Math.abs(left - corner), Math.abs(left + above - 2 * corner)];
  return a <= b && a <= c ? left : b <= c ? above : corner;
}

/** Reverts the row filters and rounds the shades. */
function pixels(raw, width, height) {
  const step = 3;
  const row = width * step;
  const out = Buffer.alloc(row * height);
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (row + 1)];
    for (let x = 0; x < row; x++) {
      const left = x >= step ? out[y * row + x - step] : 0;
      const above = y > 0 ? out[(y - 1) * row + x] : 0;
      const corner = x >= step && y > 0 ? out[(y - 1) * row + x - step] : 0;
      const guess = [0, left, above, (left + above) >> 1, paeth(left, above, corner)][filter];
      out[y * row + x] = raw[y * (row + 1) + 1 + x] + guess;
    }
  }
  return out.map(rounded);
}

const rounded = (shade) => Math.min(255, Math.round(shade / 8) * 8);

/** Returns unfiltered rows of palette indices; null if there are more than 256 colors. */
function indexed(out, width, height) {
  const colors = new Map();
  const rows = Buffer.alloc((width + 1) * height);
  for (let at = 0; at < width * height; at++) {
    const color = out.readUIntBE(at * 3, 3);
    if (!colors.has(color)) colors.set(color, colors.size);
    if (colors.size > 256) return null;
    rows[at + Math.floor(at / width) + 1] = colors.get(color);
  }
  const palette = Buffer.alloc(colors.size * 3);
  for (const [color, index] of colors) palette.writeUIntBE(color, index * 3, 3);
  return { rows, palette };
}

/** Returns unfiltered rows of RGB pixels. */
function plain(out, width, height) {
  const rows = Buffer.alloc((width * 3 + 1) * height);
  for (let y = 0; y < height; y++) out.copy(rows, y * (width * 3 + 1) + 1, y * width * 3, (y + 1) * width * 3);
  return { rows, palette: null };
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const whole = Buffer.alloc(body.length + 8);
  whole.writeUInt32BE(data.length, 0);
  body.copy(whole, 4);
  whole.writeUInt32BE(crc32(body), body.length + 4);
  return whole;
}

function shrink(bytes) {
  const all = chunks(bytes);
  const header = Buffer.from(all.find(({ type }) => type === "IHDR").data);
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  // Handles 8-bit RGB without interlacing; other images stay unchanged.
  if (header[8] !== 8 || header[9] !== 2 || header[12] !== 0) return bytes;
  const data = Buffer.concat(all.filter(({ type }) => type === "IDAT").map(({ data }) => data));
  const out = Buffer.from(pixels(inflateSync(data), width, height));
  const { rows, palette } = indexed(out, width, height) ?? plain(out, width, height);
  header[9] = palette ? 3 : 2;
  const parts = [["IHDR", header], ...(palette ? [["PLTE", palette]] : []), ["IDAT", deflateSync(rows, { level: 9 })], ["IEND", Buffer.alloc(0)]];
  const smaller = Buffer.concat([SIGNATURE, ...parts.map(([type, data]) => chunk(type, data))]);
  return smaller.length < bytes.length ? smaller : bytes;
}

let [before, after] = [0, 0];
for (const name of readdirSync(golden)) {
  const bytes = readFileSync(join(golden, name));
  const smaller = shrink(bytes);
  before += bytes.length;
  after += smaller.length;
  if (smaller !== bytes) writeFileSync(join(golden, name), smaller);
}
console.log(`golden images: ${before} bytes, now ${after}`);
