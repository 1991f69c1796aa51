"""Record the workers of a Dask cluster.

With a ``LocalCluster``, run the whole program under Floodmark: the memory of all workers is sampled, and what their tasks
allocate joins the same trace::

    floodmark run -o job.flood -- python program.py

On a cluster of several machines the workers are started elsewhere. Wrap the command that starts them, as in
``floodmark run -o /shared/worker-%h-%p.flood -- dask worker ...``; each then has a trace of its own, and the plugin joins it.
"""

from __future__ import annotations

from typing import Any

from distributed import Worker, WorkerPlugin

import floodmark


class FloodmarkPlugin(WorkerPlugin):
    """Records allocations of a worker's tasks, and marks where each task begins and ends."""

    name = "floodmark"

    def __init__(self, directory: str = "."):
        self.directory = directory

    def setup(self, worker: Worker) -> None:
        # Joins the trace of 'floodmark run' if the worker runs under it, else makes one of its own.
        name = f"{self.directory}/worker-{worker.name}.flood"
        self.recording = floodmark.record(name)
        self.recording.__enter__()

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if finish == "executing":
            floodmark.mark(f"begin {key}")
        elif start == "executing":
            floodmark.mark(f"end {key}")

    def teardown(self, worker: Worker) -> None:
        self.recording.__exit__(None, None, None)
