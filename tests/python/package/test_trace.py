"""Tracing calls: what is recorded, on every version of Python, read back from the trace's tables."""

import json
import mmap
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

import floodmark
import floodmark.trace

pa = pytest.importorskip("pyarrow.parquet")

COMMAND = os.environ.get("FLOODMARK") or shutil.which("floodmark")
IS_MONITORING = sys.version_info >= (3, 12)


def tables(path):
    """Read the tables of a trace, by name, as lists of rows."""
    assert COMMAND, "there is no floodmark command; set FLOODMARK to its path"
    result = subprocess.run([COMMAND, "info", str(path)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    manifest = json.loads((path / "manifest.json").read_text())
    found = {}
    for part in manifest["parts"]:
        rows = pa.read_table(path / part["table"] / part["file"]).to_pylist()
        found.setdefault(part["table"], []).extend(rows)
    found["gaps"] = manifest["losses"]["gaps"] + [
        gap for process in manifest["processes"] for gap in process["losses"].get("gaps", [])
    ]
    return found


def calls(path):
    """Return the calls of a trace with the names of their functions."""
    found = tables(path)
    assert not found["gaps"], found["gaps"]
    frames = {row["frame"]: row for row in found.get("frame", [])}
    rows = sorted(found.get("call", []), key=lambda row: row["time"])
    return [{**row, **{key: frames[row["frame"]][key] for key in ("function", "file", "module")}} for row in rows]


def names(rows, action):
    return [row["function"] for row in rows if row["action"] == action]


def own(rows):
    """Leave out what libraries call."""
    return [row for row in rows if row["file"] == __file__ or not row["file"]]


def traced(tmp_path, work, **options):
    path = tmp_path / "calls.flood"
    with floodmark.trace.Profile(options.pop("trigger", 0), filepath=path, quiet=True, **options) as profile:
        work()
    return profile, calls(path)


def numbers():
    yield 1
    yield 2


def add():
    return sum(numbers()) + len("abc")


def fail():
    raise ValueError


def catch():
    try:
        fail()
    except ValueError:
        pass
    try:
        [].index(3)
    except ValueError:
        pass


def test_every_call_and_return_is_recorded(tmp_path):
    profile, rows = traced(tmp_path, add)
    assert profile.events == profile.recorded == len(rows)
    shown = [(row["action"], row["function"]) for row in own(rows)]
    for step in [
        ("call", "add"), ("c_call", "sum"), ("yield", "numbers"), ("resume", "numbers"), ("yield", "numbers"),
        ("resume", "numbers"), ("return", "numbers"), ("c_return", "sum"), ("c_call", "len"), ("c_return", "len"),
        ("return", "add"),
    ]:  # fmt: skip
        assert step in shown, (step, shown)
        shown = shown[shown.index(step) + 1 :]
    first = add.__code__.co_firstlineno
    lines = {(row["action"], row["function"]): row["line"] for row in own(rows)}
    assert lines["call", "add"] == first
    assert lines["c_call", "len"] == lines["return", "add"] == first + 1
    files = {row["function"]: row["file"] for row in rows}
    assert files["add"] == __file__ and files["len"] == ""
    assert all(row["rss"] for row in rows)


def test_exceptions_have_their_own_events(tmp_path):
    _, rows = traced(tmp_path, catch)
    assert names(rows, "exception") == ["fail"]
    assert names(rows, "c_exception") == ["list.index"]
    assert names(own(rows), "return") == ["catch"]


def fresh_memory(size):
    """Return memory that was never touched; writing to it is a native call that makes it resident."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)


def test_growth_is_booked_to_the_call(tmp_path):
    memory, text = fresh_memory(8_000_000), b"x" * 8_000_000

    def grow():
        memory.write(text)

    def work():
        grow()
        memory.close()
        time.sleep(0.002)

    _, rows = traced(tmp_path, work)
    changes = {}
    for earlier, later in zip(rows, rows[1:], strict=False):
        key = later["action"], later["function"]
        changes[key] = changes.get(key, 0) + later["rss"] - earlier["rss"]
    assert 8_000_000 <= changes["c_return", "mmap.write"] <= 8_020_000
    # A release is seen within a millisecond at the latest.
    assert -8_020_000 <= rows[-1]["rss"] - max(row["rss"] for row in rows) <= -7_980_000


def test_only_changes_are_recorded(tmp_path):
    memory, text = fresh_memory(4_000_000), b"x" * 1_000_000

    def work():
        for _ in range(10_000):
            len("abc")
        for _ in range(4):
            memory.write(text)

    profile, rows = traced(tmp_path, work, trigger=500_000)
    assert profile.events > 20_000
    # The first event is recorded too: the first change is counted from it.
    assert rows[0]["action"] == "call" and rows[0]["function"].endswith("work")
    assert [(row["action"], row["function"]) for row in rows[1:]] == [("c_return", "mmap.write")] * 4
    assert profile.recorded == 5
    sizes = [row["rss"] for row in rows]
    assert all(later - earlier >= 500_000 for earlier, later in zip(sizes, sizes[1:], strict=False))


def test_pairs_have_the_event_before(tmp_path):
    memory, text = fresh_memory(3_000_000), b"x" * 3_000_000

    def work():
        for _ in range(1000):
            len("abc")
        memory.write(text)

    profile, (first, *rows) = traced(tmp_path, work, trigger=1_000_000, mode="pairs")
    assert first["action"] == "call" and first["function"].endswith("work")
    pair = [("c_call", "mmap.write"), ("c_return", "mmap.write")]
    assert [(row["action"], row["function"]) for row in rows] == pair
    # Nothing around a native function says where it was called, so its frame has the file of the caller.
    assert [row["file"] for row in rows] == [__file__] * 2
    assert [row["line"] for row in rows] == [work.__code__.co_firstlineno + 3] * 2
    assert rows[1]["rss"] - rows[0]["rss"] >= 3_000_000
    assert profile.events > 2000 > profile.recorded == 3


def test_threads_that_run_already_are_traced(tmp_path):
    ready, go, done = threading.Event(), threading.Event(), threading.Event()

    def early():
        ready.set()
        assert go.wait(30)
        add()
        done.set()

    thread = threading.Thread(target=early)
    thread.start()
    assert ready.wait(30)

    def work():
        go.set()
        assert done.wait(30)
        others = [threading.Thread(target=add) for _ in range(8)]
        for other in others:
            other.start()
        for other in others:
            other.join(30)
        thread.join(30)

    _, rows = traced(tmp_path, work)
    threads = {row["thread"] for row in rows if row["function"] == "add" and row["action"] == "call"}
    assert len(threads) == 9
    for thread in threads:
        depth = 0
        for row in rows:
            if row["thread"] == thread and row["function"] == "add":
                depth += {"call": 1, "return": -1}[row["action"]]
        assert depth == 0


def test_patterns_choose_functions(tmp_path):
    def work():
        json.dumps([1])
        add()

    _, rows = traced(tmp_path, work, include=["json"])
    assert {os.path.basename(row["file"]) for row in rows if row["file"]} == {"__init__.py", "encoder.py"}
    _, rows = traced(tmp_path / "other", work, exclude=["json", "*/test_trace.py"])
    assert {row["function"] for row in rows} & {"add", "dumps", "numbers"} == set()


def test_functions_made_in_a_loop_have_their_own_names(tmp_path):
    def work():
        for number in range(2000):
            namespace = {}
            exec(f"def made_{number % 7}(): return {number}", namespace)
            assert namespace[f"made_{number % 7}"]() == number

    _, rows = traced(tmp_path, work)
    called = [name for name in names(rows, "call") if name.startswith("made_")]
    assert called == [f"made_{number % 7}" for number in range(2000)]


@pytest.mark.skipif(not IS_MONITORING, reason="calls of types are events from Python 3.12 on")
def test_types_made_in_a_loop_have_their_own_names(tmp_path):
    def work():
        for number in range(700):
            made = type(f"Made{number % 7}", (), {"__call__": lambda self: None})
            made.attribute = number
            made()

    _, rows = traced(tmp_path, work)
    called = [name for name in names(rows, "c_call") if name.startswith("Made")]
    assert called == [f"Made{number % 7}" for number in range(700)]


def test_coroutines_and_generators_closed_early_are_balanced(tmp_path):
    import asyncio

    async def leaf(number):
        await asyncio.sleep(0)
        return number

    async def all_of_them():
        assert sum(await asyncio.gather(*(leaf(number) for number in range(1000)))) == 499_500

    def closed():
        generator = numbers()
        next(generator)
        generator.close()

    def work():
        asyncio.run(all_of_them())
        closed()

    _, rows = traced(tmp_path, work, include=["*/test_trace.py"])
    for name in ("leaf", "numbers", "closed", "all_of_them"):
        depth = 0
        for row in rows:
            if row["function"].rpartition(".")[2] == name:
                depth += 1 if row["action"] in ("call", "resume") else -1
                assert 0 <= depth <= 1
        assert depth == 0
    first = numbers.__code__.co_firstlineno
    lines = [row["line"] for row in rows if row["function"] == "numbers"]
    assert lines and set(lines) <= {first, first + 1}, lines
    leaves = [row for row in rows if row["function"].endswith("leaf")]
    assert [row["action"] for row in leaves].count("yield") == 1000


def test_a_deep_recursion_is_recorded(tmp_path):
    def deep(levels):
        return levels and deep(levels - 1)

    _, rows = traced(tmp_path, lambda: deep(500))
    actions = [row["action"] for row in rows if row["function"].endswith("deep")]
    assert actions == ["call"] * 501 + ["return"] * 501


def test_other_profilers_are_not_replaced(tmp_path):
    profile = floodmark.trace.Profile(0, filepath=tmp_path / "calls.flood", quiet=True)
    if IS_MONITORING:
        for tool in (2, 3, 4):
            sys.monitoring.use_tool_id(tool, f"tool {tool}")
        try:
            with pytest.raises(RuntimeError, match="tool 2, tool 3, tool 4"):
                profile.start()
        finally:
            for tool in (2, 3, 4):
                sys.monitoring.free_tool_id(tool)
    else:
        sys.setprofile(lambda *_: None)
        try:
            with pytest.raises(RuntimeError, match="sys.setprofile"):
                profile.start()
        finally:
            sys.setprofile(None)
    assert not floodmark._native.is_recording()
    with profile:
        add()
    assert "add" in names(calls(tmp_path / "calls.flood"), "call")


def test_a_trace_says_how_exact_it_is(tmp_path, capsys):
    for gate in (None, "rusage"):
        path = tmp_path / f"{gate}.flood"
        with floodmark.trace.Profile(0, "why", path, gate=gate) as profile:
            add()
            assert profile.log_file_path() == str(path)
        assert profile.log_file_path() is None
        assert gate is None or profile.gate == gate
        assert profile.exactness in capsys.readouterr().err
        marks = [row["name"] for row in tables(path)["scope"] if row["action"] == "mark"]
        assert marks[0] == "why"
        assert profile.exactness in marks[1] and f"gate={profile.gate}" in marks[1]
        assert marks[2].endswith(f"{profile.events} events, {profile.recorded} recorded")


def test_touched_memory_is_booked_to_the_line(tmp_path):
    def grow():
        for _ in range(2):
            fresh_memory(4_000_000).write(b"x" * 4_000_000)

    path = tmp_path / "faults.flood"
    with floodmark.trace.Profile(filepath=path, mode="faults", quiet=True) as profile:
        grow()
        thread = threading.Thread(target=grow, name="other")
        thread.start()
        thread.join(30)
    found = tables(path)
    assert "call" not in found and not found["gaps"]
    frames = {row["frame"]: row for row in found["frame"]}
    stacks = {row["stack"]: row for row in found["stack"]}
    # One for many pages of a run, see docs/calls.md.
    assert profile.recorded == len(found["stack_sample"]) > 200
    sizes = {row["time"]: row["value"] for row in found["sample"]}
    last = found["sample"][0]["value"]
    grown = {}
    for row in found["stack_sample"]:
        change, last = sizes[row["time"]] - last, sizes[row["time"]]
        if row["stack"] in stacks:
            frame = frames[stacks[row["stack"]]["frame"]]
            key = row["thread"], frame["function"].rpartition(".")[2], frame["line"]
            grown[key] = grown.get(key, 0) + max(change, 0)
    line = grow.__code__.co_firstlineno + 2
    by_thread = [size for (_, function, number), size in grown.items() if (function, number) == ("grow", line)]
    assert len(by_thread) == 2 and all(size >= 7_900_000 for size in by_thread), grown


def test_a_decorated_function_is_traced_at_every_call(tmp_path):
    @floodmark.trace.Profile(0, filepath=tmp_path / "calls.flood", quiet=True)
    def work(depth):
        return 1 if depth == 0 else 1 + work(depth - 1)

    # A recursion is part of the trace that goes on; the next call has one of its own.
    assert [work(2), work(0), work(1)] == [3, 1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calls-2.flood", "calls-3.flood", "calls.flood"]
    assert not floodmark._native.is_tracing()


def test_options_that_do_not_fit_are_refused_before_anything_is_recorded(tmp_path):
    with pytest.raises(ValueError, match="use every, changes, pairs, lines or faults"):
        floodmark.trace.Profile(0, filepath=tmp_path / "calls.flood", mode="all")
    with pytest.raises(ValueError, match="leave include and exclude out"):
        floodmark.trace.Profile(filepath=tmp_path / "calls.flood", mode="faults", include=["json"])
    assert list(tmp_path.iterdir()) == []
