"""Cost of tracing calls: slowdown, nanoseconds per event and bytes per event of every mode, beside other tracers.

    python crates/python/benches/trace_cost.py [--size BYTES] [--repeat N] [--only calls,json] [--modes every,pairs]

It needs a wheel that is optimized, and the command for the bytes at rest (``FLOODMARK`` names it if it is not in ``PATH``):

    maturin build --release --interpreter python3.12 --out wheels && python3.12 -m pip install wheels/*cp312*.whl

Each figure comes from runs in processes of their own, in the order plain, traced, plain: the slowdown is the processor
time of the traced one over the mean of the two beside it, so that a machine whose speed drifts does little harm. The median
and the range of all repetitions are printed. ``pymemtrace`` and ``memray`` take part if they are installed; an event of
memray is an allocation. Bytes are those on disk for each event that was recorded, at rest.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import trace_workloads

OURS = {
    "every": {"d_rss_trigger": 0},
    "changes": {"d_rss_trigger": -1},
    "pairs": {"d_rss_trigger": -1, "mode": "pairs"},
    "faults": {"mode": "faults"},
    "every/rusage": {"d_rss_trigger": 0, "gate": "rusage"},
}
PEERS = {"pymemtrace changes": -1, "pymemtrace every": 0, "memray": None}


def run_one(workload: str, mode: str, folder: str, scale: float) -> None:
    """Run a workload in this process and print what it took."""
    work = trace_workloads.WORKLOADS[workload]
    if workload == "numpy":
        import numpy  # noqa: F401 - importing is no part of the work
    figures = {}
    trace = os.path.join(folder, "trace.flood")
    if mode == "plain":
        begin = time.process_time()
        work(folder, scale)
    elif mode in OURS:
        import floodmark.trace

        profile = floodmark.trace.Profile(filepath=trace, quiet=True, force=True, **OURS[mode])
        with profile:
            begin = time.process_time()
            work(folder, scale)
            figures["seconds"] = time.process_time() - begin
        figures.update(events=profile.events, recorded=profile.recorded, gate=profile.gate)
    elif mode.startswith("pymemtrace"):
        from pymemtrace import cPyMemTrace

        with cPyMemTrace.Profile(PEERS[mode], "", os.path.join(folder, "pymemtrace.log")):
            begin = time.process_time()
            work(folder, scale)
            figures["seconds"] = time.process_time() - begin
    else:
        import memray

        path = os.path.join(folder, "memray.bin")
        if os.path.exists(path):
            os.remove(path)
        with memray.Tracker(path):
            begin = time.process_time()
            work(folder, scale)
            figures["seconds"] = time.process_time() - begin
    figures.setdefault("seconds", time.process_time() - begin)
    if mode.startswith("pymemtrace"):
        figures.update(events_of_log(os.path.join(folder, "pymemtrace.log")))
    elif mode == "memray":
        with memray.FileReader(path) as reader:
            events = reader.metadata.total_allocations
        figures.update(events=events, recorded=events, bytes=os.path.getsize(path))
    print(json.dumps(figures))


def events_of_log(path: str) -> dict:
    """Return the events that pymemtrace saw and logged, and the size of its log, which is removed."""
    events = recorded = 0
    with open(path, errors="replace") as lines:
        for line in lines:
            if line.startswith(("NEXT:", "LAST:")):
                recorded += line.startswith("NEXT:")
                events = int(line.split(maxsplit=2)[1])
    size = os.path.getsize(path)
    os.remove(path)
    return {"events": events, "recorded": recorded, "bytes": size}


def measure(workload: str, mode: str, folder: str, scale: float) -> dict:
    command = [sys.executable, __file__, "--one", workload, mode, folder, str(scale)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{workload}, {mode}: {result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def bytes_at_rest(trace: str) -> tuple[int, int]:
    """Seal a trace; return the bytes and the rows of its table of calls."""
    command = os.environ.get("FLOODMARK") or shutil.which("floodmark")
    if not command or subprocess.run([command, "info", trace], capture_output=True).returncode != 0:
        return 0, 0
    with open(os.path.join(trace, "manifest.json")) as file:
        parts = [part for part in json.load(file)["parts"] if part["table"] == "call"]
    return sum(part["bytes"] for part in parts), sum(part["rows"] for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=20_000_000, help="Bytes of input that the programs parse")
    parser.add_argument("--repeat", type=int, default=3, help="Triples per figure")
    parser.add_argument("--only", default=",".join(trace_workloads.WORKLOADS), help="Workloads")
    parser.add_argument("--modes", default=",".join([*OURS, *PEERS]), help="Modes and peers")
    parser.add_argument("--folder", help="Folder for input and traces [default: a temporary one]")
    options = parser.parse_args()
    if options.one:
        run_one(*options.one[:3], float(options.one[3]))
        return
    modes = [mode for mode in options.modes.split(",") if mode in OURS or importlib.util.find_spec(mode.split()[0])]
    scale = options.size / 20_000_000
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or temporary
        if {"parsing", "json"} & set(options.only.split(",")):
            trace_workloads.generate(folder, options.size)
        print(f"Python {sys.version.split()[0]}, {options.repeat} triples; median (range)")
        print(f"{'workload':10}{'mode':22}{'slowdown':>22}{'ns/event':>18}{'events':>12}{'recorded':>12}{'bytes/event':>13}")
        for workload in options.only.split(","):
            for mode in modes:
                ratios, costs = [], []
                for _ in range(options.repeat):
                    before = measure(workload, "plain", folder, scale)["seconds"]
                    traced = measure(workload, mode, folder, scale)
                    base = (before + measure(workload, "plain", folder, scale)["seconds"]) / 2
                    ratios.append(traced["seconds"] / base)
                    if traced.get("events"):
                        costs.append((traced["seconds"] - base) / traced["events"] * 1e9)
                spread = f"x{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
                cost = size = ""
                if costs:
                    cost = f"{statistics.median(costs):.0f} ({min(costs):.0f}-{max(costs):.0f})"
                    stored, rows = traced.get("bytes", 0), traced["recorded"]
                    if mode in OURS:
                        stored, rows = bytes_at_rest(os.path.join(folder, "trace.flood"))
                    size = f"{stored / rows:.2f}" if rows else ""
                events, recorded = traced.get("events", ""), traced.get("recorded", "")
                print(f"{workload:10}{mode:22}{spread:>22}{cost:>18}{events:>12}{recorded:>12}{size:>13}", flush=True)


if __name__ == "__main__":
    main()
