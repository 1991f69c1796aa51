// Builds the page: one HTML file that contains its script and style, and BUNDLE.json with the digests of its sources.
// The same sources produce the same bytes; a test of the view crate compares the digests with the sources.
// `node build.mjs DIRECTORY` writes to another directory, for comparison.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const web = dirname(fileURLToPath(import.meta.url));
const assets = process.argv[2] ?? join(web, "../crates/view/assets");
const common = { bundle: true, minify: true, write: false, legalComments: "none", charset: "utf8", target: "es2022", absWorkingDir: web };

const bundle = async (options) => (await build({ ...common, ...options })).outputFiles[0].text.trim();
const hash = (text) => `sha256-${createHash("sha256").update(text).digest("base64")}`;
const digest = (bytes) => createHash("sha256").update(bytes).digest("hex");

const license = readFileSync(join(web, "node_modules/uplot/LICENSE"), "utf8").trim();
const notice = `/* Contains uPlot 1.6.32.\n${license.replaceAll("*/", "* /")}\n*/\n`;
const script = notice + (await bundle({ entryPoints: ["src/main.ts"], format: "iife" }));
const sheet = "@import \"uplot/dist/uPlot.min.css\";\n@import \"./src/style.css\";\n";
const style = await bundle({ stdin: { contents: sheet, resolveDir: web, loader: "css" } });
if (/<\/script|<!--/i.test(script) || /<\/style/i.test(style)) throw new Error("the bundle contains its own end tag");

// One pass, so that text in the bundle is not mistaken for a placeholder.
const fills = { "%SCRIPT_HASH%": hash(script), "%STYLE_HASH%": hash(style), "%STYLE%": style, "%SCRIPT%": script };
const page = readFileSync(join(web, "src/page.html"), "utf8").replace(/%(SCRIPT_HASH|STYLE_HASH|STYLE|SCRIPT)%/g, (place) => fills[place]);

// The script of flame graphs stands alone: pages and SVG files contain it.
const flame = await bundle({ entryPoints: ["src/flame.ts"], format: "iife", charset: "ascii" });
if (/<\/script|<!--|]]>/i.test(flame)) throw new Error("the script of flame graphs contains an end tag");

const names = ["build.mjs", "package.json", "package-lock.json", "tsconfig.json", ...readdirSync(join(web, "src")).map((name) => `src/${name}`)];
const sources = Object.fromEntries(names.sort().map((name) => [`web/${name}`, digest(readFileSync(join(web, name)))]));
const files = { "report.html": page, "flame.js": flame, "flame.csp": hash(flame) };
const outputs = Object.fromEntries(Object.entries(files).map(([name, text]) => [name, digest(text)]));
mkdirSync(assets, { recursive: true });
for (const [name, text] of Object.entries(files)) writeFileSync(join(assets, name), text);
writeFileSync(join(assets, "BUNDLE.json"), `${JSON.stringify({ sources, outputs }, null, 2)}\n`);
console.log(`report.html: ${page.length} bytes`);
