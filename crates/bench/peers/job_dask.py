"""A job on Dask's local cluster, with real worker processes: TRACE SHARDS WORKERS...

Prints a row of a table for each number of workers: wall clock, CPU time of the tasks and of the engine, bytes of partial
results and answers, highest resident memory of a task, and what the engine costs per task that does nothing.
"""

import os
import resource
import sys
import time

import distributed

from floodmark import jobs


def children():
    """CPU seconds and peak of the programs that this worker has run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def own():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Counting(jobs._Dask):
    """The adapter for Dask, which also counts what its tasks return."""

    moved = 0
    tasks = 0

    def each(self, function, items):
        results = super().each(function, items)
        self.tasks += len(items)
        self.moved += sum(map(len, results))
        return results

    def reduce(self, function, items, merge):
        futures = self._client.map(function, items, pure=False)
        self.tasks += len(futures)
        self.moved += sum(self._client.gather(self._client.map(len, futures, pure=False)))
        while len(futures) > 1:
            groups = [futures[at : at + 16] for at in range(0, len(futures), 16)]
            futures = [self._client.submit(merge, group, pure=False) for group in groups]
            self.tasks += len(futures)
        return futures[0].result()


def nothing(number):
    return b""


def main(trace, shards, workers):
    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.gather(client.map(nothing, range(10), pure=False))
        begin = time.perf_counter()
        client.gather(client.map(nothing, range(1000), pure=False))
        empty_ms = time.perf_counter() - begin
        engine = Counting(client)
        before = sum(client.run(own).values()) + own()
        begin = time.perf_counter()
        found = jobs.Job(trace, engine=engine, count=shards)
        peak = found.watermark().peak_bytes
        wall = time.perf_counter() - begin
        engine_s = sum(client.run(own).values()) + own() - before
        used = list(client.run(children).values())
        print(
            f"| {workers} | {shards} | {wall:.1f} | {sum(cpu for cpu, _ in used):.1f} | {engine_s:.2f} | {engine.tasks} | "
            f"{engine.moved / 1e6:.1f} | {max(peak for _, peak in used):.0f} | {empty_ms:.2f} | {peak} |",
            flush=True,
        )


if __name__ == "__main__":
    print("| workers | shards | wall, s | CPU of tasks, s | CPU of the engine, s | tasks | MB moved | MB of a task | ms per empty task | peak |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for number in sys.argv[3:]:
        main(os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(number))
