// Follows a trace that grows: says how far it is, and has the page drawn anew when there is more.

import { make } from "./dom";
import { duration } from "./format";
import type { Server, State } from "./server";

/** How long to wait until a lost connection is tried again, in milliseconds. */
const AGAIN = 2000;
/** How often to see whether the server is there when there will be no more news. */
const LOOK = 5000;

export class Live {
  readonly sign = make("span", { id: "serving", role: "status" });
  private shown: number;
  private state: State | null = null;
  private events: EventSource | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private heard = 0;
  private isLost = false;
  private isBusy = false;
  private isPressed = false;

  constructor(
    private server: Server,
    /** Shows what there is now, and returns its version. */
    private refresh: () => Promise<number>,
  ) {
    this.shown = server.version;
    // A drag would lose what it holds on to.
    addEventListener("pointerdown", () => (this.isPressed = true));
    for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => (this.isPressed = false));
    document.addEventListener("visibilitychange", () => {
      this.listen();
      void this.catchUp();
    });
    setInterval(() => {
      this.tell();
      void this.catchUp();
    }, 1000);
    this.listen();
  }

  /** A browser has six connections for all pages of a server: a page that cannot get news has none. */
  private listen(): void {
    clearTimeout(this.timer);
    this.events?.close();
    this.events = null;
    if (document.hidden) return;
    if (this.state && this.state.state !== "live") {
      this.timer = setTimeout(() => void this.lookForServer(), LOOK);
      return;
    }
    const events = this.server.events();
    this.events = events;
    events.addEventListener("state", (event) => {
      this.state = JSON.parse((event as MessageEvent<string>).data) as State;
      this.heard = performance.now();
      this.isLost = false;
      if (this.state.state !== "live") this.listen();
      this.tell();
      void this.catchUp();
    });
    events.addEventListener("error", () => {
      if (this.events !== events) return;
      this.isLost = true;
      this.tell();
      // A browser gives up where an answer was not what it should be.
      events.close();
      this.timer = setTimeout(() => this.listen(), AGAIN);
    });
  }

  private async lookForServer(): Promise<void> {
    this.isLost = !(await this.server.isThere());
    this.tell();
    this.listen();
  }

  private async catchUp(): Promise<void> {
    const { state } = this;
    if (!state || this.isBusy || this.isPressed || document.hidden || this.isLost || state.version <= this.shown) return;
    this.isBusy = true;
    try {
      this.shown = await this.refresh();
    } catch {
      // The next news tell whether the server is still there.
    } finally {
      this.isBusy = false;
    }
  }

  private tell(): void {
    const { state } = this;
    const kind = this.isLost ? "lost" : (state?.state ?? "lost");
    const elapsed = (state?.elapsed ?? 0) + (performance.now() - this.heard) * 1e6;
    const words = {
      live: `live, ${elapsed < 60e9 ? `${Math.max(0, Math.floor(elapsed / 1e9))} s` : duration(elapsed)}`,
      ended: "ended",
      failed: `stopped: ${state?.why ?? ""}`,
      lost: "connection lost, trying again",
    };
    const text = this.isLost || state ? words[kind] : "";
    if (this.sign.textContent !== text) this.sign.textContent = text;
    this.sign.className = kind;
  }
}
