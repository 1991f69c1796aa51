"""What a trace of calls keeps and gives back, and what it says where it is not exact."""

import json
import os
import subprocess
import sys
import threading
import tracemalloc
import types

import pytest

import floodmark
import floodmark.trace
from floodmark import _native
from test_trace import COMMAND, calls, fresh_memory, names, tables


def perf_rings():
    with open("/proc/self/maps") as maps:
        return sum("perf_event" in line for line in maps)


def test_rings_of_all_threads_are_given_back(tmp_path):
    begin, end = threading.Barrier(3), threading.Barrier(3)

    def work():
        begin.wait(20)
        len("abc")
        end.wait(20)

    for number in range(2):
        threads = [threading.Thread(target=work) for _ in range(2)]
        with floodmark.trace.Profile(0, filepath=tmp_path / f"{number}.flood", quiet=True) as profile:
            for thread in threads:
                thread.start()
            begin.wait(20)
            during = perf_rings()
        assert during >= (3 if profile.gate != "rusage" else 0)
        # The threads have not ended.
        assert perf_rings() == 0
        end.wait(20)
        for thread in threads:
            thread.join(20)
        called = names(calls(tmp_path / f"{number}.flood"), "call")
        assert any(name.endswith("work") for name in called)


def test_many_functions_have_names(tmp_path):
    """More than fit into what is kept when a trace begins."""
    count = 7_000
    made = {}
    exec("def made(x):\n" + " x = [x, 1][0]\n" * 40 + " return x\n", made)
    code = made["made"].__code__
    assert 250 < len(code.co_code) // 2 < 500
    functions = [
        types.FunctionType(code.replace(co_name=f"made_{number}", co_qualname=f"made_{number}"), {})
        for number in range(count)
    ]
    with floodmark.trace.Profile(0, filepath=tmp_path / "calls.flood", quiet=True):
        for function in functions:
            function(1)
    called = names(calls(tmp_path / "calls.flood"), "call")
    assert sum(name.startswith("made_") for name in called) == count


def test_forked_children_record_faults(tmp_path, run):
    run(
        """
        import os, floodmark.trace
        kept = []
        def child():
            kept.append(b"1" * 5_000_000)
        def parent():
            kept.append(b"2" * 7_000_000)
        floodmark.trace.start(filepath="run.flood", mode="faults", quiet=True)
        parent()
        pid = os.fork()
        if pid == 0:
            child()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        parent()
        floodmark.trace.stop()
        """
    )
    found = tables(tmp_path / "run.flood")
    stacks = {row["stack"]: row for row in found["stack"]}
    frames = {row["frame"]: row["function"] for row in found["frame"]}
    numbers = {row["subject"]: row["number"] for row in found["subject"]}
    seen = {}
    for row in found["stack_sample"]:
        functions, at = set(), row["stack"]
        while at in stacks:
            functions.add(frames[stacks[at]["frame"]])
            at = stacks[at]["parent"]
        seen.setdefault(numbers[row["subject"]], set()).update(functions & {"parent", "child"})
    assert sorted(map(sorted, seen.values())) == [["child"], ["parent"]]


def test_snapshots_are_taken_at_peaks(tmp_path, capsys):
    path = tmp_path / "calls.flood"
    kept = []
    with floodmark.trace.Profile(0, filepath=path, tracemalloc=5_000_000) as profile:
        kept.append(b"1" * 40_000_000)
    assert not tracemalloc.is_tracing()
    assert profile.snapshots and os.listdir(path / "tracemalloc") == [os.path.basename(profile.snapshots[-1])]
    largest = tracemalloc.Snapshot.load(profile.snapshots[-1]).statistics("lineno")[0]
    assert largest.size >= 40_000_000 and largest.traceback[0].filename == __file__
    assert "1 snapshot of tracemalloc" in capsys.readouterr().err
    rows = calls(path)
    # Nothing of the thread that takes them.
    assert {row["thread"] for row in rows} == {threading.get_native_id()}
    marks = subprocess.run([COMMAND, "read", str(path), "--samples"], capture_output=True, text=True, timeout=60).stdout
    assert "tracemalloc snapshot" in marks


@pytest.mark.parametrize("mode", ["changes", "lines"])
def test_growth_is_not_charged_to_the_thread_that_takes_snapshots(tmp_path, mode):
    memory, data = fresh_memory(60_000_000), b"1" * 30_000_000

    def grow():
        memory.write(data)

    path = tmp_path / "calls.flood"
    with floodmark.trace.Profile(filepath=path, mode=mode, tracemalloc=5_000_000, quiet=True) as profile:
        grow()
    assert profile.snapshots
    result = subprocess.run([COMMAND, "calls", str(path), "--json"], capture_output=True, text=True, timeout=60)
    most = json.loads(result.stdout)["functions"][0]
    expected = "write" if mode == "changes" else "grow"
    assert most["function"].rpartition(".")[2] == expected and most["own_bytes"] >= 29_000_000


def test_growth_is_not_charged_to_the_function_that_is_called_next(tmp_path):
    memory, data = fresh_memory(30_000_000), b"1" * 30_000_000

    def grow():
        # No call: the next event is that of `len`.
        memory[:30_000_000] = data
        return len(data)

    path = tmp_path / "calls.flood"
    with floodmark.trace.Profile(filepath=path, mode="changes", quiet=True):
        grow()
    result = subprocess.run([COMMAND, "calls", str(path), "--json"], capture_output=True, text=True, timeout=60)
    line = json.loads(result.stdout)["lines"][0]
    assert (line["function"], line["file"], line["line"]) == ("caller of len", __file__, grow.__code__.co_firstlineno + 3)
    assert line["gained_bytes"] >= 29_000_000


@pytest.mark.parametrize("when", ["thread", "stop"])
def test_snapshots_that_fail_do_not_end_the_program(tmp_path, monkeypatch, capsys, when):
    def take_snapshot():
        raise MemoryError("on purpose")

    memory, data = fresh_memory(20_000_000), b"1" * 20_000_000
    monkeypatch.setattr(tracemalloc, "take_snapshot", take_snapshot)
    profile = floodmark.trace.Profile(filepath=tmp_path / "calls.flood", tracemalloc=1_000_000, quiet=True)
    with profile:
        if when == "stop":
            profile._peaks._is_stopped.set()
            profile._peaks._thread.join()
        memory.write(data)
        if when == "thread":
            profile._peaks._thread.join(60)
            assert not profile._peaks._thread.is_alive()
    assert not profile.snapshots and not _native.is_recording()
    assert capsys.readouterr().err.count("no more snapshots of tracemalloc: MemoryError: on purpose") == 1
    assert calls(tmp_path / "calls.flood")


def test_a_forked_child_leaves_the_snapshots_of_its_parent(tmp_path, run):
    result = run(
        """
        import os, floodmark.trace, floodmark.trace._snapshots as snapshots
        snapshots._MOST = 1
        profile = floodmark.trace.Profile(filepath="calls.flood", tracemalloc=1_000_000, quiet=True).start()
        kept = [b"1" * 20_000_000]
        while not profile._peaks.paths:
            os.sched_yield()
        pid = os.fork()
        if pid == 0:
            kept.append(b"1" * 80_000_000)
            profile.stop()
            os._exit(len(profile.snapshots))
        assert os.waitpid(pid, 0)[1] == 0
        profile.stop()
        assert all(map(os.path.exists, profile.snapshots))
        print(len(profile.snapshots))
        """
    )
    assert result.stdout == "1\n", result.stderr


def test_the_number_of_snapshots_is_bounded(tmp_path):
    kept = []
    path = tmp_path / "calls.flood"
    with floodmark.trace.Profile(filepath=path, tracemalloc=100_000, quiet=True, mode="lines") as profile:
        while len(profile._peaks.paths) < 10 or os.path.basename(profile._peaks.paths[0]).endswith("-1.snapshot"):
            kept.append(b"1" * 1_000_000)
            assert len(kept) < 500
            threading.Event().wait(0.003)
    assert len(profile.snapshots) == len(os.listdir(path / "tracemalloc")) == 10


def test_a_programs_own_tracemalloc_goes_on(tmp_path):
    tracemalloc.start(3)
    try:
        with floodmark.trace.Profile(filepath=tmp_path / "calls.flood", tracemalloc=True, quiet=True):
            pass
        assert tracemalloc.is_tracing() and tracemalloc.get_traceback_limit() == 3
    finally:
        tracemalloc.stop()


def test_greenlets_are_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "greenlet", sys)
    with floodmark.trace.Profile(filepath=tmp_path / "calls.flood", quiet=True):
        pass
    assert capsys.readouterr().err.count("greenlets take turns") == 1


@pytest.mark.parametrize("mode", ["every", "lines"])
def test_growth_is_seen_without_perf(tmp_path, mode):
    """The gate of containers: a system call, a microsecond apart."""

    memory, data = fresh_memory(30_000_000), b"1" * 30_000_000

    def grow():
        memory.write(data)

    path = tmp_path / "calls.flood"
    with floodmark.trace.Profile(0, filepath=path, mode=mode, quiet=True, gate="rusage") as profile:
        grow()
    assert profile.gate == "rusage" and "1 µs" in profile.exactness
    result = subprocess.run([COMMAND, "calls", str(path)], capture_output=True, text=True, timeout=60)
    line = next(line for line in result.stdout.splitlines() if ".grow" in line)
    assert "28.6 MiB" in line, result.stdout
