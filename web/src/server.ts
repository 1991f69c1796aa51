// A page that a server hands out: asks it for the document again, for lines in detail, for instants.

import type { Chart, Column, Document, Moments } from "./data";
import { type Host, type Part, decoded, embedded } from "./host";

/** Lines between two instants, in as much detail as there is room for. */
export interface Lines {
  charts: Chart[];
  numbers(column: Column): Promise<Float64Array>;
}

/** How far what is shown has come. */
export interface State {
  version: number;
  state: "live" | "ended" | "failed";
  /** Nanoseconds since the origin. */
  elapsed: number;
  why: string;
}

interface Look {
  answer: Promise<Lines>;
  askers: Set<string>;
  abort: AbortController;
}

export class Server {
  /** What is being asked for, by its address; charts that show the same ask once. */
  private looks = new Map<string, Look>();
  /** Gives up the instants that were asked for last. */
  private picked: AbortController | null = null;

  private constructor(
    private token: string,
    /** Version of the document in the page. */
    readonly version: number,
  ) {}

  /** The server behind this page, if there is one. A page that was saved has an address without a token. */
  static behind(): Server | null {
    const sign = document.querySelector<HTMLMetaElement>('meta[name="floodmark-serve"]');
    const token = new URLSearchParams(location.search).get("token");
    return sign && token ? new Server(token, Number(sign.content)) : null;
  }

  /** What the page itself carries, with a server to ask for more. */
  first(): Host {
    return this.host(embedded);
  }

  /** What there is to show now. */
  async latest(): Promise<{ host: Host; version: number }> {
    const sent = (await this.ask("api/document")) as { version: number; document: Document; columns: string[] };
    const numbers = fromColumns(sent.columns);
    return { host: this.host({ document: async () => sent.document, numbers }), version: sent.version };
  }

  events(): EventSource {
    return new EventSource(`api/events?token=${encodeURIComponent(this.token)}`);
  }

  /** Whether the server still answers. */
  async isThere(): Promise<boolean> {
    try {
      return (await fetch("api/events", { method: "HEAD", headers: this.headers(), cache: "no-store" })).ok;
    } catch {
      return false;
    }
  }

  private headers(): Record<string, string> {
    return { Authorization: `Bearer ${this.token}` };
  }

  private host(own: Host): Host {
    return {
      document: () => own.document(),
      numbers: (column) => own.numbers(column),
      moments: (times) => this.moments(times),
      lines: (from, to, asker) => this.lines(from, to, asker),
    };
  }

  /** Whoever picks another instant waits for the one before no longer. */
  private async moments(times: number[]): Promise<Part> {
    this.picked?.abort();
    this.picked = new AbortController();
    const sent = (await this.ask(`api/moment?at=${times.join()}`, this.picked.signal)) as { moments: Moments; strings: string[]; columns: string[] };
    return { moments: sent.moments, strings: sent.strings, numbers: fromColumns(sent.columns) };
  }

  /** What one asked for before is given up when it asks for something else. */
  private lines(from: number, to: number, asker: string): Promise<Lines> {
    const address = `api/range?from=${Math.floor(from)}&to=${Math.ceil(to)}&points=4000`;
    for (const [key, look] of this.looks) {
      if (key === address || !look.askers.delete(asker) || look.askers.size > 0) continue;
      look.abort.abort();
      this.looks.delete(key);
    }
    let look = this.looks.get(address);
    if (!look) {
      const abort = new AbortController();
      const answer = this.ask(address, abort.signal).then((sent) => {
        const { charts, columns } = sent as { charts: Chart[]; columns: string[] };
        return { charts, numbers: fromColumns(columns) };
      });
      look = { answer, askers: new Set(), abort };
      this.looks.set(address, look);
      const forget = () => {
        if (this.looks.get(address)?.abort === abort) this.looks.delete(address);
      };
      answer.then(forget, forget);
    }
    look.askers.add(asker);
    return look.answer;
  }

  private async ask(address: string, signal?: AbortSignal): Promise<unknown> {
    const answer = await fetch(address, { headers: this.headers(), signal: signal ?? null, cache: "no-store" });
    if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
    return answer.json();
  }
}

function fromColumns(columns: string[]): (column: Column) => Promise<Float64Array> {
  return ({ column, length }) => decoded(columns[column] ?? "", length);
}
