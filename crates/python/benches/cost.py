"""Costs of the package beside plain Python, and beside RMM on a machine with a GPU.

    python crates/python/benches/cost.py [--rmm] [--only TEXT]

Every figure is the median of rounds, with the least and the most, in CPU time of the thread or process. What is
compared is measured in turns, and the empty loop is subtracted. `--rmm` measures RMM too.
"""

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import timeit

import floodmark
import floodmark.numpy

ROUNDS = 25
LOOPS = 20_000
PANDAS_ROUNDS = 9


class PlainBlock:
    """The least that a context manager in Python is."""

    __slots__ = ()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        pass


class PlainObject:
    __slots__ = ("size",)

    def __init__(self, size=0):
        self.size = size


def function():
    pass


class Figure:
    """Values of the rounds of one measurement."""

    def __init__(self, values):
        self.values = sorted(values)

    def __str__(self):
        return f"{statistics.median(self.values):.0f} ({self.values[0]:.0f}–{self.values[-1]:.0f})"


def in_turns(*timers, rounds=ROUNDS, loops=LOOPS):
    """Nanoseconds of each statement in each round, an empty loop subtracted."""
    empty = timeit.Timer("pass", timer=time.thread_time)
    for timer in timers:
        timer.timeit(loops // 10)
    values = [[] for _ in timers]
    for _ in range(rounds):
        nothing = empty.timeit(loops)
        for timer, mine in zip(timers, values):
            mine.append((timer.timeit(loops) - nothing) / loops * 1e9)
    return values


def timer(statement, **names):
    return timeit.Timer(statement, globals=names, timer=time.thread_time)


def pair(plain, ours):
    """Plain Python, ours, and the difference of each round."""
    theirs, mine = in_turns(plain, ours)
    return Figure(theirs), Figure(mine), Figure([one - other for one, other in zip(mine, theirs)])


def pooled(rmm):
    rmm.reinitialize(pool_allocator=True, initial_pool_size=2**26)


def buffer(rmm):
    pooled(rmm)
    return pair(timer("B(1024)", B=bytearray), timer("B(size=1024)", B=rmm.DeviceBuffer))


def empty_buffer(rmm):
    pooled(rmm)
    return pair(timer("B()", B=PlainObject), timer("B()", B=rmm.DeviceBuffer))


def profiled_call(rmm):
    rmm.statistics.enable_statistics()
    return pair(timer("f()", f=function), timer("f()", f=rmm.statistics.profiler(name="benchmark")(function)))


def profiler_block(rmm):
    rmm.statistics.enable_statistics()
    return pair(timer("with b: pass", b=PlainBlock()), timer("with b: pass", b=rmm.statistics.profiler(name="block")))


def new_profiler_block(rmm):
    rmm.statistics.enable_statistics()
    return pair(timer("with B(): pass", B=PlainBlock), timer("with p(name='block'): pass", p=rmm.statistics.profiler))


def statistics_block(rmm):
    rmm.statistics.enable_statistics()
    return pair(timer("with B(): pass", B=PlainBlock), timer("with s(): pass", s=rmm.statistics.statistics))


def scope(recorded):
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        if recorded:
            stack.enter_context(floodmark.record(os.path.join(folder, "run.flood")))
        return pair(timer("with B(): pass", B=PlainBlock), timer("with s('block'): pass", s=floodmark.scope))


def arrays(statement):
    """NumPy's own and ours, measured in turns by installing in between."""
    import numpy

    # NumPy needs memory of the host, on a machine with a GPU too.
    host = floodmark.mr.PoolMemoryResource(floodmark.mr.SystemMemoryResource(), 2**26)
    floodmark.mr.set_current_device_resource(host)
    measured = timer(statement, np=numpy)
    plain, ours = [], []
    for _ in range(ROUNDS):
        plain.append(measured.timeit(LOOPS) / LOOPS * 1e9)
        with floodmark.numpy.installed():
            ours.append(measured.timeit(LOOPS) / LOOPS * 1e9)
    return Figure(plain), Figure(ours), Figure([one - other for one, other in zip(ours, plain)])


def importing():
    """Milliseconds of CPU time to start Python without and with the package."""

    def start(code):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3

    start("import floodmark")
    plain, ours = zip(*[(start("pass"), start("import floodmark")) for _ in range(ROUNDS)])
    return Figure(plain), Figure(ours), Figure([one - other for one, other in zip(ours, plain)])


def large_frames():
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"key": rng.integers(0, 100, 500_000), "value": rng.random(500_000)})

    def pipeline():
        means = frame.sort_values("value").groupby("key")["value"].mean()
        return frame.merge(means.rename("mean"), left_on="key", right_index=True).assign(rank=lambda f: f["mean"])

    return pipeline


def small_frames():
    import pandas as pd

    def pipeline():
        for _ in range(30):
            frame = pd.DataFrame({"a": range(10), "b": range(10)})
            frame["c"] = frame["a"] + frame["b"]
            frame.groupby("a").sum()
            frame.sort_values("b")

    return pipeline


def settled(run):
    """The least of five runs, after two in which the interpreter adapts to replaced functions."""
    run(), run()
    return min(run() for _ in range(5))


def pandas_profiled(make):
    """Milliseconds of a pipeline without and with all of pandas profiled, and the part in percent that it adds.

    NumPy's memory comes from us in both.
    """
    pipeline = make()
    # NumPy needs memory of the host, on a machine with a GPU too.
    floodmark.mr.set_current_device_resource(floodmark.mr.SystemMemoryResource())
    with floodmark.numpy.installed():

        def run():
            begin = time.process_time()
            pipeline()
            return (time.process_time() - begin) * 1e3

        plain, ours = [], []
        for _ in range(PANDAS_ROUNDS):
            plain.append(settled(run))
            floodmark.profile_package("pandas")
            ours.append(settled(run))
            floodmark.unprofile_package("pandas")
    return Figure(plain), Figure(ours), Figure([(one / other - 1) * 100 for one, other in zip(ours, plain)])


ROWS = [
    ("`DeviceBuffer(size=1024)` on a pool, made and freed; `bytearray(1024)`", buffer, "ns", 500),
    ("`DeviceBuffer()` without memory; an object with a slot", empty_buffer, "ns", 100),
    ("a profiled call; a plain one", profiled_call, "ns", 500),
    ("`with` a profiler context that is kept; a context manager in Python", profiler_block, "ns", 300),
    ("`with profiler(name=...)`, made each time", new_profiler_block, "ns", None),
    ("`with statistics()`", statistics_block, "ns", 300),
]
OWN_ROWS = [
    ("`with floodmark.scope(...)`, nothing recorded", lambda: scope(False), "ns", 300),
    ("`with floodmark.scope(...)`, recorded", lambda: scope(True), "ns", 300),
    ("`numpy.empty(1000)` on a pool; NumPy's own", lambda: arrays("np.empty(1000)"), "ns", 60),
    ("`numpy.empty(10)` on a pool; NumPy's own, from its cache", lambda: arrays("np.empty(10)"), "ns", 60),
    ("starting Python with `import floodmark`; without", importing, "ms", 50),
    ("pandas profiled, frames of 500,000 rows", lambda: pandas_profiled(large_frames), "%", 25),
    ("pandas profiled, frames of 10 rows", lambda: pandas_profiled(small_frames), "%", 25),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rmm", action="store_true", help="measure RMM too")
    parser.add_argument("--only", default="", help="measure rows whose text contains this")
    options = parser.parse_args()
    peers = [floodmark]
    if options.rmm:
        import rmm
        import rmm.statistics

        peers.append(rmm)
    print(f"Python {sys.version.split()[0]}, {floodmark.devices()[0].name}; median (least–most) of {ROUNDS} rounds\n")
    print("| what | unit | plain Python | with the package | more | budget |")
    print("|---|---|---|---|---|---|")
    for peer in peers:
        for name, measure, unit, budget in ROWS:
            if options.only in name:
                show(name if peer is floodmark else f"RMM: {name}", unit, measure(peer), budget if peer is floodmark else None)
    for name, measure, unit, budget in OWN_ROWS:
        if options.only in name:
            show(name, unit, measure(), budget)


def show(name, unit, figures, budget):
    """Print a row. Budgets are of what a row costs in all for buffers and blocks, else of the difference."""
    plain, ours, more = figures
    unit, suffix = ("ms", " %") if unit == "%" else (unit, "")
    print(f"| {name} | {unit} | {plain} | {ours} | {more}{suffix} | {budget or '–'} |", flush=True)


if __name__ == "__main__":
    main()
