// Chooses what a timeline is divided by, and shows a legend with values at the cursor.

import type uPlot from "uplot";
import { type Cursor, lastUpTo } from "./cursor";
import type { SnapshotData } from "./host";
import { make, style } from "./dom";
import { bytes } from "./format";
import type { Snapshots } from "./snapshots";
import { type Layers, MOST_BLOCKS, blockLayers, drawLayers, layerAt, layersOf } from "./stacked";

const COLORS = 10;
/** Choices besides the breakdowns of the document. */
const NOTHING = "nothing";
const BLOCK = "block";
const OTHERS = "#8a949e";

export class BreakdownView {
  readonly choice: HTMLElement;
  readonly legend = make("div", { class: "layers", hidden: true });
  private select = make("select", { id: "stacked" });
  private layers: Layers | null = null;
  private values: HTMLElement[] = [];
  private pointed = -1;
  private plot: uPlot | null = null;
  private sources = new Map<string, () => Promise<Layers>>();
  private snapshots: Snapshots | null = null;
  /** Visible range that the layers of blocks are for. */
  private blocksOf = "";

  constructor(
    title: string,
    private cursor: Cursor,
    /** Called with the name of a layer that the reader clicks. */
    private onLayer: (by: string, name: string) => void,
  ) {
    this.choice = make("label", { class: "choice" }, `${title}, divided by `, this.select);
    this.select.addEventListener("change", () => {
      void this.load();
      this.cursor.notifyChange();
    });
    cursor.onMove((time) => this.showValues(time));
    cursor.onSelection(() => this.showValues(cursor.selected[cursor.selected.length - 1]?.time ?? 0));
  }

  /** Shows the breakdowns of a document; the choice stays if it exists. */
  async update(data: SnapshotData, snapshots: Snapshots): Promise<void> {
    this.snapshots = snapshots;
    const { breakdowns, exact, limit } = data.columns;
    this.sources = new Map(breakdowns.map((one) => [one.by, () => layersOf(data, one, snapshots.times)]));
    await this.offer([...this.sources.keys(), ...(exact && limit === null ? [BLOCK] : []), NOTHING]);
  }

  /** Shows lines that add up to the first one. */
  async updateLines(by: string, layers: () => Layers): Promise<void> {
    this.sources = new Map([[by, async () => layers()]]);
    await this.offer([NOTHING, by]);
  }

  private async offer(options: string[]): Promise<void> {
    this.blocksOf = "";
    const chosen = options.includes(this.select.value) ? this.select.value : options[0];
    this.select.replaceChildren(...options.map((name) => make("option", { value: name }, name)));
    this.select.value = chosen ?? NOTHING;
    await this.load();
  }

  /** What the timeline is divided by; empty for the default. */
  get by(): string {
    return this.select.selectedIndex <= 0 ? "" : this.select.value;
  }

  async restore(by: string): Promise<void> {
    const options = [...this.select.options].map(({ value }) => value);
    const wanted = options.includes(by) ? by : (options[0] ?? "");
    if (wanted === this.select.value) return;
    this.select.value = wanted;
    await this.load();
  }

  /** Reads the chosen layers again after their data has grown. */
  async reload(): Promise<void> {
    if (this.layers) await this.load();
  }

  get isDrawn(): boolean {
    return this.layers !== null;
  }

  private async load(): Promise<void> {
    const by = this.select.value;
    this.blocksOf = "";
    this.pointed = -1;
    this.layers = (await this.sources.get(by)?.()) ?? null;
    if (by === BLOCK) this.fillBlocks();
    this.fillLegend();
    this.plot?.redraw(false, false);
  }

  /** Selects the blocks of the visible range. */
  private fillBlocks(): void {
    const { snapshots, plot } = this;
    if (!snapshots || this.select.value !== BLOCK) return;
    const { min = 0, max = 0 } = (plot?.scales.x ?? {}) as { min?: number; max?: number };
    const range = `${min} ${max}`;
    if (range === this.blocksOf) return;
    this.blocksOf = range;
    this.layers = blockLayers(snapshots, Math.max(0, lastUpTo(snapshots.times, min * 1e9)), Math.max(0, lastUpTo(snapshots.times, max * 1e9)));
  }

  private color(layer: number): string {
    const color = this.layers?.color(layer) ?? -1;
    return color < 0 ? OTHERS : style(`--series-${color % COLORS}`);
  }

  private fillLegend(): void {
    const { layers } = this;
    this.values = [];
    this.legend.hidden = layers === null;
    if (!layers) return this.legend.replaceChildren();
    if (this.select.value === BLOCK) {
      const note = `Each area is a block, oldest at the bottom; the ${MOST_BLOCKS} largest areas of the visible range have colors. Point at one to read it.`;
      this.legend.replaceChildren(make("p", { class: "note" }, note), make("p", { class: "pointed" }));
      return;
    }
    this.legend.replaceChildren(
      ...layers.names.map((name, layer) => {
        const value = make("span", { class: "value" });
        this.values.push(value);
        const chip = make("span", { class: "chip" });
        const color = layers.color(layer);
        chip.style.background = color < 0 ? OTHERS : `var(--series-${color % COLORS})`;
        const button = make("button", { type: "button", title: name }, chip, make("span", { class: "name" }, short(name)), value);
        button.addEventListener("click", () => this.onLayer(this.select.value, name));
        button.addEventListener("mouseenter", () => this.point(layer));
        button.addEventListener("mouseleave", () => this.point(-1));
        button.addEventListener("focus", () => this.point(layer));
        button.addEventListener("blur", () => this.point(-1));
        return button;
      }),
    );
    this.showValues(this.cursor.selected[this.cursor.selected.length - 1]?.time ?? 0);
  }

  private showValues(time: number): void {
    const { layers } = this;
    if (!layers) return;
    const at = lastUpTo(layers.times, time);
    this.values.forEach((element, layer) => {
      const value = at < 0 ? 0 : layers.value(layer, at);
      element.textContent = value === 0 ? "-" : bytes(value);
    });
  }

  private point(layer: number): void {
    if (layer === this.pointed) return;
    this.pointed = layer;
    [...this.legend.querySelectorAll("button")].forEach((button, at) => button.classList.toggle("pointed", at === layer));
    const block = this.legend.querySelector("p.pointed");
    const { layers } = this;
    if (block && layers) {
      const at = lastUpTo(layers.times, (this.plot?.posToVal(this.plot.cursor.left ?? 0, "x") ?? 0) * 1e9);
      block.textContent = layer < 0 ? "" : `${bytes(layers.value(layer, at))} ${layers.names[layer] ?? ""}`;
    }
    this.plot?.redraw(false, false);
  }

  /** Draws into a timeline. */
  plugin(): uPlot.Plugin {
    return {
      hooks: {
        init: (plot) => {
          this.plot = plot;
          plot.over.addEventListener("mousemove", ({ offsetX, offsetY, target }) => {
            if (!this.layers || target !== plot.over) return;
            this.point(layerAt(this.layers, plot.posToVal(offsetX, "x") * 1e9, plot.posToVal(offsetY, "y")));
          });
          plot.over.addEventListener("mouseleave", () => this.point(-1));
        },
        drawAxes: (plot) => {
          this.fillBlocks();
          if (this.layers) drawLayers(plot, this.layers, (layer) => this.color(layer), style("--page"), this.pointed);
        },
      },
    };
  }
}

/** Returns a name without the directories of its file. */
export function short(name: string): string {
  return name.replace(/([([])[^()[\]]*\/([^()[\]/]+[)\]])$/, "$1$2");
}
