"""The same truth: a program with known allocations, as recorded here, by the real pymemtrace and by the kernel.

pymemtrace 0.6.3 builds as it is on Python 3.13 only, so these tests run there, and elsewhere if it is installed all the same.
"""

import datetime
import json
import re
import subprocess
import sys

import pytest
from test_trace import COMMAND, IS_MONITORING, calls

pytest.importorskip("pymemtrace.cPyMemTrace", reason="pymemtrace is not installed; 0.6.3 builds on Python 3.13 only")

#: Both tracers read the size of the whole process, one after the other. In between, and in the thread that seals the trace,
#: pages are touched that are not the program's: never more than these.
NOISE = 16 * 4096
#: Without rss_stat a release is seen within a millisecond, and at the event after that.
LATE = datetime.timedelta(milliseconds=2)

PROGRAM = """
import mmap, random, sys, time

PAGE = mmap.PAGESIZE
TEXT = memoryview(b"x" * (300 * PAGE))
random = random.Random(int(sys.argv[2]))
plan = [(random.random() < 0.6, random.randrange(1, 300)) for _ in range(30)]
kept = []

def fresh(pages):
    memory = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory

def hold(memory, pages):
    memory.write(TEXT[: pages * PAGE])

def keep(memory, pages):
    hold(memory, pages)
    kept.append(memory)

def drop(memory):
    memory.close()
    time.sleep(0.002)

def work():
    for is_kept, pages in plan:
        memory = fresh(pages)
        if is_kept:
            keep(memory, pages)
        else:
            hold(memory, pages)
            drop(memory)

def resident():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))

def ours():
    import floodmark.trace
    return floodmark.trace.Profile(0, filepath="ours.flood", quiet=True)

def theirs(name="theirs.log", trigger=0, kind="Profile"):
    from pymemtrace import cPyMemTrace
    return getattr(cPyMemTrace, kind)(trigger, "a message", name)

resident()
if sys.argv[1] == "together":
    with ours() as profile, theirs():
        work()
        end = resident()
elif sys.argv[1] == "ours":
    with ours() as profile:
        work()
        end = resident()
else:
    with theirs("theirs.log", int(sys.argv[3]), sys.argv[4]) as log:
        log.write_message_to_log("half\\nNEXT: of it")
        work()
        with theirs("inner.log"):
            work()
        end = resident()
written = sum(pages for _, pages in plan) * PAGE
released = sum(pages for is_kept, pages in plan if not is_kept) * PAGE
print(written, released, end, profile.gate if "profile" in globals() else "")
"""


def run(folder, *arguments):
    """Run the program; return what it wrote and released, its size at the end, and how its size was known."""
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", *map(str, arguments)]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    written, released, end, *gate = result.stdout.split()
    return int(written), int(released), int(end), "".join(gate)


def ask(*arguments):
    result = subprocess.run([COMMAND, *map(str, arguments), "--json"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


#: A row of an event: number, distance, time, what, file, line, function, RSS and its change.
ROW = re.compile(r"NEXT: \d+ +\+\d+ +[\d.]+ +(\w+) +.*? +(\d+) (\S+) +(\d+) +-?\d+$")


def log_rows(path):
    """Return the events of a log as (what, line, function, RSS)."""
    found = map(ROW.match, path.read_text().splitlines())
    return [(row[1], int(row[2]), row[3], int(row[4])) for row in found if row]


WORDS = {
    "call": "CALL", "resume": "CALL", "return": "RETURN", "yield": "RETURN", "exception": "RETURN",
    "c_call": "C_CALL", "c_return": "C_RETURN", "c_exception": "C_EXCEPT",
}  # fmt: skip


def pairs(rows, log):
    """Pair each event of a log with ours; only ours has calls of types from Python 3.12 on."""
    rows = iter(rows)
    found = []
    for event in log:
        for row in rows:
            # A generator that is closed has no line on Python 3.12.
            line = row["line"] or event[1]
            if (WORDS[row["action"]], line, row["function"].rpartition(".")[2]) == event[:3]:
                found.append((row, event))
                break
        else:
            raise AssertionError(f"{event} was not recorded after {len(found)} events")
    return found


def gained(answer, name):
    return sum(row["gained_bytes"] for row in answer["functions"] if row["function"].rpartition(".")[2] == name)


@pytest.mark.skipif(not IS_MONITORING, reason="only one profile function can be set before Python 3.12")
def test_at_every_event_both_tracers_see_the_same_size(tmp_path):
    written, released, end, gate = run(tmp_path, "together", 1)
    rows, log = calls(tmp_path / "ours.flood"), log_rows(tmp_path / "theirs.log")
    found = pairs(rows, log)
    assert len(found) == len(log) > 300
    last, release = 0, rows[0]["time"] - LATE
    for row, (*_, rss) in found:
        if rss < last - NOISE:
            release = row["time"]
        last = rss
        is_late = gate != "rss_stat" and row["time"] - release <= LATE
        assert abs(row["rss"] - rss) <= NOISE or (is_late and row["rss"] > rss), (row, rss)
    assert abs(rows[-1]["rss"] - end) <= NOISE
    ours, theirs = ask("calls", tmp_path / "ours.flood"), ask("calls", tmp_path / "theirs.log")
    for answer in (ours, theirs):
        assert answer["functions"][0]["function"].endswith("write")
        assert abs(gained(answer, "write") - written) <= NOISE
        assert abs(answer["released_bytes"] - released) <= NOISE
        # What else the program touches: a list that grows, its frames.
        assert answer["gained_bytes"] - written <= 4 * NOISE


def test_in_runs_of_their_own_both_tracers_charge_the_same_functions(tmp_path):
    written, released, end, _ = run(tmp_path, "ours", 2)
    assert run(tmp_path, "theirs", 2, 0, "Profile")[:2] == (written, released)
    rows, log = calls(tmp_path / "ours.flood"), log_rows(tmp_path / "theirs.log")
    log = log[: next(at for at, event in enumerate(log) if event[:1] == ("RETURN",) and event[2] == "work") + 1]
    log = log[next(at for at, event in enumerate(log) if event[2] == "work") :]
    found = pairs(rows, log)
    writes = [at for at, (_, event) in enumerate(found) if event[0] == "C_RETURN" and event[2] == "write"]
    assert len(writes) == 30
    for at in writes:
        (before, (*_, rss_before)), (row, (*_, rss)) = found[at - 1], found[at]
        assert abs((row["rss"] - before["rss"]) - (rss - rss_before)) <= NOISE
    assert abs(rows[-1]["rss"] - end) <= NOISE
    assert abs(gained(ask("calls", tmp_path / "ours.flood"), "write") - written) <= NOISE


@pytest.mark.parametrize(
    ("trigger", "kind", "top"), [(0, "Profile", "write"), (-1, "Profile", "write"), (0, "Trace", "hold")]
)
def test_logs_of_the_real_pymemtrace_are_read(tmp_path, trigger, kind, top):
    written, released, *_ = run(tmp_path, "theirs", 3, trigger, kind)
    log = tmp_path / "theirs.log"
    answer = ask("calls", log)
    assert answer["functions"][0]["function"] == top
    # The second round of work is in the inner log; a trace of lines goes on beside it.
    rounds = 1 if kind == "Profile" else 2
    assert abs(gained(answer, top) - rounds * written) <= NOISE
    assert not answer["losses"]
    trace = tmp_path / "imported.flood"
    subprocess.run([COMMAND, "import", "-q", log, "-o", trace], check=True, timeout=60)
    assert ask("calls", trace)["functions"] == answer["functions"]
    assert abs(gained(ask("calls", tmp_path / "inner.log"), "write") - written) <= NOISE


def test_a_log_of_references_is_refused_and_says_why(tmp_path):
    from pymemtrace import cPyMemTrace

    if not hasattr(cPyMemTrace, "ReferenceTracing"):
        pytest.skip("ReferenceTracing needs Python 3.13")
    log = tmp_path / "references.log"
    with cPyMemTrace.ReferenceTracing("a message", str(log)):
        [object() for _ in range(10)]
    for command in (["calls", log], ["import", log, "-o", tmp_path / "imported.flood"]):
        result = subprocess.run([COMMAND, *map(str, command)], capture_output=True, text=True, timeout=60)
        assert result.returncode == 2
        assert "ReferenceTracing, which lists objects that are made and freed without their sizes" in result.stderr
    assert not (tmp_path / "imported.flood").exists()
