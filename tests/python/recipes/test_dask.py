"""The recipe for Dask, run on a cluster of this machine."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import floodmark
from floodmark._command import find_command

ROOT = Path(__file__).parents[3]

PROGRAM = """
import os, time
from distributed import Client, LocalCluster
from dask_floodmark import FloodmarkPlugin

def work(size):
    import floodmark
    held = floodmark.DeviceBuffer(size=size)
    data = bytearray(64 << 20)
    time.sleep(0.3)
    return os.getpid()

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.register_plugin(FloodmarkPlugin())
        tasks = [
            client.submit(work, 1_000_000 + number, workers=[worker], pure=False)
            for number, worker in enumerate(client.scheduler_info()["workers"])
        ]
        print(sorted(client.gather(tasks)))
"""


def test_workers_of_dask_record_into_one_trace(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "examples/python"), "FLOODMARK_DEVICE": "host"}
    result = subprocess.run(
        [find_command(), "run", "-q", "-o", "dask.flood", "--", sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    workers = eval(result.stdout)  # noqa: S307 - what the program above printed
    trace = floodmark.open(tmp_path / "dask.flood")
    events = trace.events.to_polars().filter(action="alloc")
    # What each worker allocated is there once, under the worker's process.
    assert sorted(events["bytes"].to_list()) == [1_000_000, 1_000_001]
    assert events["process"].n_unique() == 2
    # The same processes were sampled from outside, with what their tasks held.
    peaks = {process.pid: process.peak_rss_bytes for process in trace.summary().sampled}
    assert all(peaks[pid] > 64 << 20 for pid in workers), peaks
    marks = trace.scopes.to_polars().filter(action="mark")["name"].cast(str).to_list()
    assert sum(mark.startswith("begin work-") for mark in marks) == 2, marks
    assert sum(mark.startswith("end work-") for mark in marks) == 2, marks
