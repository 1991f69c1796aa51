// Stack samples as dots over the line of a timeline.

import type uPlot from "uplot";
import type { ChartProps } from "./chart";
import { lastUpTo } from "./cursor";
import type { Dot } from "./data";
import { make } from "./dom";

const NS = 1e9;

/** Describes the stacks of a moment in a line. */
function dotLabel({ threads, omitted, reason }: Dot): string {
  const more = threads.length + omitted - 1;
  return `Stack of ${threads[0]?.who ?? "a thread"}${more > 0 ? ` and of ${more} more` : ""}, ${reason}`;
}

/** Stacks as buttons over the line, one for each moment, so that they are accessible by keyboard. */
export class DotLayer {
  private buttons: { dot: Dot; value: number; button: HTMLButtonElement }[];

  constructor(
    private props: ChartProps,
    private times: number[],
    private values: (number | null)[],
  ) {
    this.buttons = this.createButtons();
  }

  /** Replaces the dots by those of a newer document. */
  refill(plot: uPlot): void {
    const same = (a: Dot, b: Dot) => a.time === b.time;
    const chosen = this.buttons.find(({ button }) => button.classList.contains("chosen"))?.dot;
    this.buttons.forEach(({ button }) => button.remove());
    this.buttons = this.createButtons();
    for (const { dot, button } of this.buttons) {
      button.classList.toggle("chosen", chosen !== undefined && same(dot, chosen));
      plot.over.append(button);
    }
    this.place(plot);
  }

  private createButtons(): { dot: Dot; value: number; button: HTMLButtonElement }[] {
    const { props, times, values } = this;
    return props.dots.map((dot) => {
      const value = values[lastUpTo(times, dot.time / NS)] ?? 0;
      const label = dotLabel(dot);
      const button = make("button", { type: "button", class: "dot", title: label, "aria-label": label });
      const choose = () => {
        for (const other of this.buttons) other.button.classList.toggle("chosen", other.button === button);
        props.choose(dot);
      };
      button.addEventListener("click", choose);
      // Pressing a dot must not start a zoom.
      button.addEventListener("mousedown", (event) => event.stopPropagation());
      return { dot, value, button };
    });
  }

  plugin(): uPlot.Plugin {
    return {
      hooks: {
        init: (plot) => this.buttons.forEach(({ button }) => plot.over.append(button)),
        draw: (plot) => this.place(plot),
      },
    };
  }

  private place(plot: uPlot): void {
    for (const { dot, value, button } of this.buttons) {
      const x = plot.valToPos(dot.time / NS, "x");
      button.hidden = x < 0 || x > plot.over.clientWidth;
      button.style.left = `${x}px`;
      button.style.top = `${plot.valToPos(value, "y")}px`;
    }
  }
}
