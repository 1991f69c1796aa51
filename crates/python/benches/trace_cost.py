"""Cost of tracing calls: slowdown, nanoseconds per event and bytes per event of every mode, beside other tracers.

    python crates/python/benches/trace_cost.py [--size BYTES] [--slow-size BYTES] [--repeat N] [--only calls,json]
        [--modes every,pairs]

It needs a wheel that is optimized, and the command for the bytes at rest (``FLOODMARK`` names it if it is not in ``PATH``):

    maturin build --release --interpreter python3.12 --out wheels && python3.12 -m pip install wheels/*cp312*.whl

Each figure comes from runs in processes of their own, with a plain run before and after each: the slowdown is the
processor time of the traced one over the mean of the two beside it, so that a machine whose speed drifts does little harm.
All modes take turns in every repetition; the median and the range of all repetitions are printed. ``pymemtrace`` and
``memray`` take part if they are installed: all modes of pymemtrace, with less input (``--slow-size``), beside plain runs
with the same input. An event of memray is an allocation, one of reference tracing the making or the end of an object.
Bytes are those on disk for each event that was recorded, at rest.
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
#: Name of the class, and its arguments before the message.
PYMEMTRACE = {
    "pymemtrace changes": ("Profile", -1),
    "pymemtrace every": ("Profile", 0),
    "pymemtrace Trace changes": ("Trace", -1),
    "pymemtrace Trace every": ("Trace", 0),
    "pymemtrace references": ("ReferenceTracing",),
}
MODES = [*OURS, "memray", *PYMEMTRACE]


def is_available(mode: str) -> bool:
    if mode in OURS:
        return True
    if importlib.util.find_spec(mode.split()[0]) is None:
        return False
    if mode == "memray":
        return True
    from pymemtrace import cPyMemTrace

    return hasattr(cPyMemTrace, PYMEMTRACE[mode][0])


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

        name, *arguments = PYMEMTRACE[mode]
        with getattr(cPyMemTrace, name)(*arguments, "", os.path.join(folder, "pymemtrace.log")):
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
            if line.startswith(("NEW:", "DEL:")):
                events, recorded = events + 1, recorded + 1
            elif line.startswith(("NEXT:", "LAST:")):
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


class Figures:
    """What the repetitions of one mode gave."""

    def __init__(self, folder: str, scale: float) -> None:
        self.folder = folder
        self.scale = scale
        self.ratios: list[float] = []
        self.costs: list[float] = []
        self.traced: dict = {}
        self.size = ""

    def add(self, workload: str, mode: str, before: float) -> float:
        """Run a mode and a plain run after it; return the time of the plain one."""
        self.traced = measure(workload, mode, self.folder, self.scale)
        after = measure(workload, "plain", self.folder, self.scale)["seconds"]
        base = (before + after) / 2
        self.ratios.append(self.traced["seconds"] / base)
        if self.traced.get("events"):
            self.costs.append((self.traced["seconds"] - base) / self.traced["events"] * 1e9)
            stored, rows = self.traced.get("bytes", 0), self.traced["recorded"]
            if mode in OURS and not self.size:
                stored, rows = bytes_at_rest(os.path.join(self.folder, "trace.flood"))
            if stored and rows:
                self.size = f"{stored / rows:.2f}"
        return after

    def show(self, workload: str, mode: str) -> None:
        spread = f"x{statistics.median(self.ratios):.2f} ({min(self.ratios):.2f}-{max(self.ratios):.2f})"
        cost = ""
        if self.costs:
            cost = f"{statistics.median(self.costs):.0f} ({min(self.costs):.0f}-{max(self.costs):.0f})"
        events, recorded = self.traced.get("events", ""), self.traced.get("recorded", "")
        print(f"{workload:10}{mode:26}{spread:>24}{cost:>22}{events:>12}{recorded:>12}{self.size:>13}", flush=True)


def run_workload(workload: str, modes: list[str], repeat: int, folders: dict[bool, tuple[str, float]]) -> None:
    figures = {mode: Figures(*folders[mode in PYMEMTRACE]) for mode in modes}
    for is_slow, (folder, scale) in folders.items():
        taking_part = [mode for mode in modes if (mode in PYMEMTRACE) == is_slow]
        for _ in range(repeat if taking_part else 0):
            plain = measure(workload, "plain", folder, scale)["seconds"]
            for mode in taking_part:
                plain = figures[mode].add(workload, mode, plain)
    for mode in modes:
        figures[mode].show(workload, mode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=20_000_000, help="Bytes of input that the programs parse")
    parser.add_argument("--slow-size", type=int, default=1_000_000, help="The same for pymemtrace")
    parser.add_argument("--repeat", type=int, default=3, help="Runs of every mode")
    parser.add_argument("--only", default=",".join(trace_workloads.WORKLOADS), help="Workloads")
    parser.add_argument("--modes", default=",".join(MODES), help="Modes and peers")
    parser.add_argument("--folder", help="Folder for input and traces [default: a temporary one]")
    options = parser.parse_args()
    if options.one:
        run_one(*options.one[:3], float(options.one[3]))
        return
    modes = [mode for mode in options.modes.split(",") if is_available(mode)]
    with tempfile.TemporaryDirectory() as temporary:
        folders = {}
        for is_slow, size in (False, options.size), (True, options.slow_size):
            folder = os.path.join(options.folder or temporary, str(size))
            os.makedirs(folder, exist_ok=True)
            trace_workloads.generate(folder, size)
            folders[is_slow] = folder, size / 20_000_000
        print(f"Python {sys.version.split()[0]}, {options.size:,} bytes of input, {options.slow_size:,} for pymemtrace;")
        print(f"median (range) of {options.repeat}")
        print(f"{'workload':10}{'mode':26}{'slowdown':>24}{'ns/event':>22}{'events':>12}{'recorded':>12}{'bytes/event':>13}")
        for workload in options.only.split(","):
            run_workload(workload, modes, options.repeat, folders)


if __name__ == "__main__":
    main()
