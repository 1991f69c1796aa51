// The server behind a served page: provides newer documents, detailed charts and snapshots.

import type { Chart, Column, Document, SnapshotColumns } from "./data";
import { type Host, type SnapshotData, decoded, embedded } from "./host";

/** Charts between two times, in as much detail as fits. */
export interface DetailedCharts {
  charts: Chart[];
  numbers(column: Column): Promise<Float64Array>;
}

/** Progress of the recording. */
export interface State {
  version: number;
  state: "live" | "ended" | "failed";
  /** Nanoseconds since the origin. */
  elapsed: number;
  why: string;
}

interface RangeRequest {
  answer: Promise<DetailedCharts>;
  requesters: Set<string>;
  abort: AbortController;
}

export class Server {
  /** Pending requests by address; charts that show the same range share one. */
  private rangeRequests = new Map<string, RangeRequest>();
  /** Cancels the latest request for snapshots. */
  private snapshotRequest: AbortController | null = null;

  private constructor(
    private token: string,
    /** Version of the embedded document. */
    readonly version: number,
  ) {}

  /** Returns the server of this page; null for a report or a saved page, whose address has no token. */
  static ofPage(): Server | null {
    const meta = document.querySelector<HTMLMetaElement>('meta[name="floodmark-serve"]');
    const token = new URLSearchParams(location.search).get("token");
    return meta && token ? new Server(token, Number(meta.content)) : null;
  }

  /** Returns the embedded document, with this server for details. */
  first(): Host {
    return this.host(embedded);
  }

  /** Requests the current document. */
  async latest(): Promise<{ host: Host; version: number }> {
    const sent = (await this.fetch("api/document")) as { version: number; document: Document; columns: string[] };
    const numbers = fromColumns(sent.columns);
    return { host: this.host({ document: async () => sent.document, numbers }), version: sent.version };
  }

  events(): EventSource {
    return new EventSource(`api/events?token=${encodeURIComponent(this.token)}`);
  }

  /** Tells whether the server still answers. */
  async isReachable(): Promise<boolean> {
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
      snapshots: (times) => this.snapshots(times),
      range: (from, to, requester) => this.range(from, to, requester),
    };
  }

  /** Requests snapshots and cancels the previous request for others. */
  private async snapshots(times: number[]): Promise<SnapshotData> {
    this.snapshotRequest?.abort();
    this.snapshotRequest = new AbortController();
    const sent = (await this.fetch(`api/snapshots?at=${times.join()}`, this.snapshotRequest.signal)) as {
      snapshots: SnapshotColumns;
      strings: string[];
      columns: string[];
    };
    return { columns: sent.snapshots, strings: sent.strings, numbers: fromColumns(sent.columns) };
  }

  /** Requests a range and cancels requests that no requester waits for any more. */
  private range(from: number, to: number, requester: string): Promise<DetailedCharts> {
    const address = `api/range?from=${Math.floor(from)}&to=${Math.ceil(to)}&points=4000`;
    for (const [key, request] of this.rangeRequests) {
      if (key === address || !request.requesters.delete(requester) || request.requesters.size > 0) continue;
      request.abort.abort();
      this.rangeRequests.delete(key);
    }
    let request = this.rangeRequests.get(address);
    if (!request) {
      const abort = new AbortController();
      const answer = this.fetch(address, abort.signal).then((sent) => {
        const { charts, columns } = sent as { charts: Chart[]; columns: string[] };
        return { charts, numbers: fromColumns(columns) };
      });
      request = { answer, requesters: new Set(), abort };
      this.rangeRequests.set(address, request);
      const remove = () => {
        if (this.rangeRequests.get(address)?.abort === abort) this.rangeRequests.delete(address);
      };
      answer.then(remove, remove);
    }
    request.requesters.add(requester);
    return request.answer;
  }

  private async fetch(address: string, signal?: AbortSignal): Promise<unknown> {
    const answer = await fetch(address, { headers: this.headers(), signal: signal ?? null, cache: "no-store" });
    if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
    return answer.json();
  }
}

function fromColumns(columns: string[]): (column: Column) => Promise<Float64Array> {
  return ({ column, length }) => decoded(columns[column] ?? "", length);
}
