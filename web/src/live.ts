// Follows a growing trace: shows its state and refreshes the page when there is new data.

import { make } from "./dom";
import { duration } from "./format";
import type { Server, State } from "./server";

/** Milliseconds before a lost connection is tried again. */
const RETRY_MS = 2000;
/** Milliseconds between checks whether the server is reachable once the recording has ended. */
const CHECK_MS = 5000;

export class Live {
  readonly status = make("span", { id: "serving", role: "status" });
  private shownVersion: number;
  private state: State | null = null;
  private events: EventSource | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private receivedAt = 0;
  private isLost = false;
  private isBusy = false;
  private isPressed = false;

  constructor(
    private server: Server,
    /** Shows the current document and returns its version. */
    private refresh: () => Promise<number>,
  ) {
    this.shownVersion = server.version;
    // A refresh would interrupt a drag.
    addEventListener("pointerdown", () => (this.isPressed = true));
    for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => (this.isPressed = false));
    document.addEventListener("visibilitychange", () => {
      this.listen();
      void this.catchUp();
    });
    setInterval(() => {
      this.showStatus();
      void this.catchUp();
    }, 1000);
    this.listen();
  }

  /** Listens for updates while the page is visible: a browser allows six connections per server for all pages. */
  private listen(): void {
    clearTimeout(this.timer);
    this.events?.close();
    this.events = null;
    if (document.hidden) return;
    if (this.state && this.state.state !== "live") {
      this.timer = setTimeout(() => void this.checkServer(), CHECK_MS);
      return;
    }
    const events = this.server.events();
    this.events = events;
    events.addEventListener("state", (event) => {
      this.state = JSON.parse((event as MessageEvent<string>).data) as State;
      this.receivedAt = performance.now();
      this.isLost = false;
      if (this.state.state !== "live") this.listen();
      this.showStatus();
      void this.catchUp();
    });
    events.addEventListener("error", () => {
      if (this.events !== events) return;
      this.isLost = true;
      this.showStatus();
      // Browsers do not reconnect after an invalid response, so reconnecting is done here.
      events.close();
      this.timer = setTimeout(() => this.listen(), RETRY_MS);
    });
  }

  private async checkServer(): Promise<void> {
    this.isLost = !(await this.server.isReachable());
    this.showStatus();
    this.listen();
  }

  private async catchUp(): Promise<void> {
    const { state } = this;
    if (!state || this.isBusy || this.isPressed || document.hidden || this.isLost || state.version <= this.shownVersion) return;
    this.isBusy = true;
    try {
      this.shownVersion = await this.refresh();
    } catch {
      // The next update tells whether the server is still reachable.
    } finally {
      this.isBusy = false;
    }
  }

  private showStatus(): void {
    const { state } = this;
    const kind = this.isLost ? "lost" : (state?.state ?? "lost");
    const elapsed = (state?.elapsed ?? 0) + (performance.now() - this.receivedAt) * 1e6;
    const texts = {
      live: `live, ${elapsed < 60e9 ? `${Math.max(0, Math.floor(elapsed / 1e9))} s` : duration(elapsed)}`,
      ended: "ended",
      failed: `stopped: ${state?.why ?? ""}`,
      lost: "connection lost, reconnecting",
    };
    const text = this.isLost || state ? texts[kind] : "";
    if (this.status.textContent !== text) this.status.textContent = text;
    this.status.className = kind;
  }
}
