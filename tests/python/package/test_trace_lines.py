"""Changes of the resident size by line, and filters of what is traced."""

import asyncio
import json
import os
import subprocess
import sys
import threading

import pytest

import floodmark
import floodmark.trace
from test_trace import COMMAND, calls, fresh_memory, tables

MB = 1_000_000
#: What is written; no line makes it.
DATA = memoryview(b"1" * (8 * MB))


def line_changes(path):
    """Return what lines gained and released, by function and line, as ``floodmark calls`` says."""
    result = subprocess.run([COMMAND, "calls", str(path), "--json"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    lines = json.loads(result.stdout)["lines"]
    return {(row["function"], row["line"]): (row["gained_bytes"], row["released_bytes"]) for row in lines}


def touch(memory, size):
    memory.write(DATA[:size])


def work():
    memory = fresh_memory(20 * MB)
    text = "x" * 1000
    memory.write(DATA[: 8 * MB])
    number = len(text)
    touch(memory, 4 * MB)
    memory.close()
    return number


def steps():
    memory = fresh_memory(8 * MB)
    yield 1
    memory.write(DATA[: 3 * MB])
    yield memory


def fail():
    memory = fresh_memory(8 * MB)
    memory.write(DATA[: 5 * MB])
    raise ValueError(memory)


def trace_lines(path, function, **options):
    with floodmark.trace.Profile(filepath=path, mode="lines", quiet=True, **options) as profile:
        function()
    assert 0 < profile.recorded <= profile.events
    return line_changes(path)


def near(value, expected):
    return abs(value - expected) < 0.6 * MB


def first(function):
    return function.__code__.co_firstlineno


def test_growth_and_release_are_charged_to_the_line(tmp_path):
    found = trace_lines(tmp_path / "lines.flood", work, include=[__file__])
    assert near(found["work", first(work) + 3][0], 8 * MB)
    assert near(found["touch", first(touch) + 1][0], 4 * MB)
    assert near(found["work", first(work) + 6][1], 12 * MB)
    others = [gained for place, (gained, _) in found.items() if place[0] == "work" and place[1] != first(work) + 3]
    assert sum(others) < MB


def tracepoints():
    """Return the command that lets a program read the kernel's tracepoints; none if that cannot be had."""
    if os.access("/sys/kernel/tracing/events/syscalls/sys_exit_munmap/id", os.R_OK):
        return []
    mounted = ["unshare", "--mount", "sh", "-c", 'mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"', "sh"]
    try:
        return mounted if subprocess.run([*mounted, "true"], capture_output=True).returncode == 0 else None
    except FileNotFoundError:
        return None


def test_faults_charge_releases_to_the_line_where_the_kernel_reports_them(tmp_path):
    command = tracepoints()
    if command is None:
        pytest.skip("neither is tracefs mounted nor may this user mount it")
    program = (
        "import floodmark.trace, test_trace_lines\n"
        "with floodmark.trace.Profile(filepath='faults.flood', mode='faults', quiet=True) as profile:\n"
        "    test_trace_lines.work()\n"
        "assert not profile.remedy and 'releases' in profile.exactness, profile.exactness\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}
    result = subprocess.run(
        [*command, sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    found = line_changes(tmp_path / "faults.flood")
    assert near(found["work", first(work) + 3][0], 8 * MB)
    assert near(found["work", first(work) + 6][1], 12 * MB)
    assert sum(released for place, (_, released) in found.items() if place != ("work", first(work) + 6)) < MB


def test_generators_exceptions_and_threads(tmp_path):
    kept = []

    def program():
        kept.extend(steps())
        with pytest.raises(ValueError) as error:
            fail()
        kept.append(error.value)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    found = trace_lines(tmp_path / "lines.flood", program)
    assert near(found["steps", first(steps) + 3][0], 3 * MB)
    assert near(found["fail", first(fail) + 2][0], 5 * MB)
    assert near(found["work", first(work) + 3][0], 8 * MB)


def test_tasks_that_take_turns_have_their_own_lines(tmp_path):
    kept = []

    async def load(size):
        memory = fresh_memory(20 * MB)
        await asyncio.sleep(0)
        memory.write(DATA[: size * MB])
        await asyncio.sleep(0)
        kept.append(memory)

    async def other(size):
        memory = fresh_memory(20 * MB)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        memory.write(DATA[: size * MB])
        kept.append(memory)

    async def main():
        await asyncio.gather(load(3), other(5), load(4))

    found = trace_lines(tmp_path / "lines.flood", lambda: asyncio.run(main()))
    named = {place[0].rpartition(".")[2]: gained for place, (gained, _) in found.items() if gained > MB}
    assert near(named["load"], 7 * MB) and near(named["other"], 5 * MB), found
    assert found[next(place for place in found if place[0].endswith("load") and place[1] == first(load) + 3)]
    # The same in a trace of every call: changes belong to the coroutine that ran.
    kept.clear()
    with floodmark.trace.Profile(0, filepath=tmp_path / "calls.flood", quiet=True):
        asyncio.run(main())
    result = subprocess.run([COMMAND, "calls", str(tmp_path / "calls.flood"), "--json"], capture_output=True, text=True)
    functions = json.loads(result.stdout)["functions"]
    cumulative = {row["function"].rpartition(".")[2]: row["cumulative_bytes"] for row in functions}
    assert near(cumulative["load"], 7 * MB) and near(cumulative["other"], 5 * MB), cumulative


@pytest.mark.parametrize("mode", ["every", "lines"])
@pytest.mark.parametrize("pattern", ["chosen_module", "*/chosen_module.py"])
def test_filters_work_for_calls_and_lines(tmp_path, monkeypatch, mode, pattern):
    source = "def grow(memory):\n    memory.write(b'6' * 3_000_000)\n"
    for name in ("chosen_module", "other_module"):
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    import chosen_module
    import other_module

    memory = fresh_memory(20 * MB)
    for option in ("include", "exclude"):
        path = tmp_path / f"{option}.flood"
        line = sys._getframe().f_lineno + 2
        with floodmark.trace.Profile(0, filepath=path, mode=mode, quiet=True, **{option: [pattern]}):
            chosen_module.grow(memory)
            other_module.grow(memory)
        if mode == "every":
            files = {row["file"].rpartition("/")[2] for row in calls(path) if row["function"] == "grow"}
            assert files == {"chosen_module.py" if option == "include" else "other_module.py"}
        else:
            # Stacks have all functions; what is left out is charged to the line that called it.
            charged = {place for place, (gained, _) in line_changes(path).items() if gained > MB}
            expected = {("grow", 2)}
            if option == "exclude":
                expected.add(("test_filters_work_for_calls_and_lines", line))
            assert charged == expected, charged
    for name in ("chosen_module", "other_module"):
        sys.modules.pop(name)


def test_a_process_is_one_subject_to_all_that_record_it(tmp_path):
    path = tmp_path / "lines.flood"
    with floodmark.trace.Profile(filepath=path, mode="lines", quiet=True):
        with floodmark.monitor(10):
            work()
        with floodmark.monitor(10):
            pass
    found = tables(path)
    (subject,) = [row["subject"] for row in found["subject"] if row["number"] == os.getpid()]
    sizes = [row["value"] for row in found["sample"] if row["metric"] == "rss"]
    assert {row["subject"] for row in found["sample"]} == {subject}
    result = subprocess.run([COMMAND, "info", str(path), "--json"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["memory"]["peak_rss_bytes"] == max(sizes)
    # The next recording does not know it.
    with floodmark.monitor(10, tmp_path / "next.flood"):
        pass
    assert [row["number"] for row in tables(tmp_path / "next.flood")["subject"]] == [os.getpid()]


def test_sizes_of_other_processes_are_not_those_of_the_trace(tmp_path):
    program = "kept = bytearray(b'1') * 20_000_000\n"
    words = ["run", "-q", "-o", "run.flood", "--interval", "2ms", "--", sys.executable, "-m", "floodmark.trace"]
    words += ["-q", "--lines", "-c", program]
    result = subprocess.run([COMMAND, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    found = tables(tmp_path / "run.flood")
    traced = {row["subject"] for row in found["stack_sample"]}
    sizes = [row for row in found["sample"] if row["metric"] == "rss" and row["subject"] in traced]
    assert len(traced) == 1 < len({row["subject"] for row in found["sample"]})
    result = subprocess.run([COMMAND, "calls", "run.flood", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    answer = json.loads(result.stdout)
    assert answer["first_rss_bytes"] == min(sizes, key=lambda row: row["time"])["value"]
    assert answer["peak_rss_bytes"] <= max(row["value"] for row in sizes)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring has room for several tools")
def test_a_debugger_is_not_replaced():
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        with pytest.raises(RuntimeError, match="sys.settrace"):
            floodmark.trace.start(mode="lines", quiet=True)
    finally:
        sys.settrace(before)


#: Writes into new memory, page by page: runs of any length, and single pages after each.
RUNS = """
import mmap, random, sys, threading
import floodmark.trace

PAGE = mmap.PAGESIZE
TEXT = memoryview(b"x" * (400 * PAGE))
kept = []

def fresh(pages):
    memory = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    kept.append(memory)
    return memory

def fill(memory, pages):
    memory.write(TEXT[: pages * PAGE])

def step(memory, pages):
    for page in range(0, pages * PAGE, 3 * PAGE):
        memory[page] = 1

def warm(memory):
    memory[0] = 1

def work(sizes):
    # What the tracer itself takes for a thread is charged to the first page that the thread touches.
    warm(fresh(1))
    for pages in sizes:
        long, other = fresh(400), fresh(120)
        fill(long, pages)
        step(other, 120)

random = random.Random(5)
sizes = [random.randrange(1, 400) for _ in range(30)]
with floodmark.trace.Profile(filepath=sys.argv[1], mode="faults", quiet=True) as profile:
    if sys.argv[2] == "thread":
        # A thread inherits how often the kernel signals the one that starts it, which is within a run here.
        warm(fresh(1))
        fill(fresh(400), 200)
        thread = threading.Thread(target=work, args=(sizes,))
        thread.start()
        thread.join()
        sizes = [200, *sizes]
    else:
        work(sizes)
        # The end of the trace, right behind a run.
        fill(fresh(400), 333)
        sizes.append(333)
print(sum(sizes) * PAGE, (len(sizes) - 1) * 40 * PAGE, profile.recorded)
"""


@pytest.mark.parametrize("where", ["main", "thread"])
def test_runs_of_pages_are_charged_to_their_line_and_take_few_signals(tmp_path, where):
    (tmp_path / "program.py").write_text(RUNS)
    command = [sys.executable, "program.py", "faults.flood", where]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    filled, stepped, recorded = map(int, result.stdout.split())
    gained = {}
    for (function, _), (bytes_gained, _) in line_changes(tmp_path / "faults.flood").items():
        gained[function] = gained.get(function, 0) + bytes_gained
    # Pages that the interpreter and the tracer touch in between. The pages between the last signal of each run and its
    # end are ten times as many.
    noise = 32 * 4096
    assert abs(gained["fill"] - filled) <= noise, (gained, filled, stepped)
    assert abs(gained["step"] - stepped) <= noise, (gained, filled, stepped)
    if where == "main":
        assert recorded < (filled // 4 + stepped) // 4096
