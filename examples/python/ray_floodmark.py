"""Record the tasks and actors of a Ray job.

Start the node's processes under Floodmark, and the memory of all workers is sampled into one trace for each node::

    floodmark run -o /shared/ray-%h.flood -- ray start --head --block
    floodmark run -o /shared/ray-%h.flood -- ray start --address=HEAD:6379 --block

Pass ``worker_process_setup_hook`` to record what workers allocate into the same trace::

    ray.init(runtime_env={"worker_process_setup_hook": "ray_floodmark.start"})

This recipe was not run by the tests of Floodmark.
"""

from __future__ import annotations

import atexit

import floodmark


def start() -> None:
    """Record this worker until it ends."""
    recording = floodmark.record("worker.flood")
    recording.__enter__()
    atexit.register(recording.__exit__, None, None, None)
