"""What is hard to trace, all in one program: it has to run as without a tracer, and every call has its return.

Threads, recursion, coroutines, exceptions through native code, generators closed early, code made and dropped, forks, and
ends without a clean-up, in every mode.
"""

import json
import subprocess
import sys

import pytest
from test_trace import COMMAND, IS_MONITORING, tables

PROGRAM = """
import asyncio, functools, gc, os, sys, threading
import floodmark.trace

def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def recurse(levels):
    return levels and recurse(levels - 1)

def threads():
    def body(number):
        for _ in range(200):
            recurse(20)
    all_of_them = [threading.Thread(target=body, args=(number,)) for number in range(8)]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join()

def recursion():
    try:
        recurse(10**6)
    except RecursionError:
        return
    raise AssertionError

def coroutines():
    async def leaf(number):
        await asyncio.sleep(0)
        if number % 10 == 0:
            raise KeyError(number)
        return number
    async def all_of_them():
        results = await asyncio.gather(*map(leaf, range(1000)), return_exceptions=True)
        assert sum(isinstance(result, KeyError) for result in results) == 100
        task = asyncio.ensure_future(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    asyncio.run(all_of_them())

def exceptions():
    def fail(item, *_):
        raise ValueError(item)
    class Bad:
        __hash__ = __eq__ = __del__ = fail
        __lt__ = fail
    def through(call):
        try:
            call()
        except ValueError:
            return
        raise AssertionError
    for _ in range(50):
        through(lambda: sorted([1, 2], key=fail))
        through(lambda: list(map(fail, [1])))
        through(lambda: max([1, 2], key=fail))
        through(lambda: functools.reduce(fail, [1, 2]))
        through(lambda: {Sick: 1})
        through(lambda: sum(fail(item) for item in [1]))
        through(lambda: sorted([Sick, Sick]))
    assert int("7") == 7
    try:
        int("x")
    except ValueError:
        pass

class Sick(type):
    def __hash__(cls):
        raise ValueError
    def __lt__(cls, other):
        raise ValueError

class Sick(metaclass=Sick):
    pass

def generators():
    def numbers():
        try:
            yield from range(10)
        finally:
            rss()
    for _ in range(200):
        generator = numbers()
        next(generator)
        generator.close()
        generator = numbers()
        next(generator)
        try:
            generator.throw(KeyError)
        except KeyError:
            pass
        next(numbers())
    gc.collect()

def made():
    for number in range(1000):
        namespace = {}
        exec(f"def made_{number % 10}(): return [{number}]\\nmade_{number % 10}()", namespace)

def forks():
    for status in (0, 7):
        pid = os.fork()
        if pid == 0:
            recurse(50)
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status

before = rss()
trigger, mode = {"every": (0, "every")}.get(sys.argv[1], (4096, sys.argv[1]))
floodmark.trace.start(trigger, filepath="run.flood", mode=mode, quiet=True)
recurse(100)
begun = rss()
for work in (recursion, threads, coroutines, exceptions, generators, made, forks):
    work()
# What the program itself needs is known from running it again.
first = rss()
for work in (threads, exceptions, generators, made):
    work()
print(begun - before, rss() - first, flush=True)
if sys.argv[2] == "_exit":
    os._exit(5)
if sys.argv[2] == "kill":
    os.kill(os.getpid(), 9)
floodmark.trace.stop()
"""


def torture(folder, mode, end):
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", mode, end]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert result.returncode == {"stop": 0, "_exit": 5, "kill": -9}[end], result.stderr
    fixed, grown = map(int, result.stdout.split())
    # The tracer takes its memory when it begins, and then no more.
    assert fixed < 32_000_000 and grown < 1_000_000, (fixed, grown)
    answer = subprocess.run(
        [COMMAND, "calls", str(folder / "run.flood"), "--json"], capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


@pytest.mark.parametrize("mode", ["changes", "pairs", "faults"])
def test_nothing_breaks_where_changes_are_recorded(tmp_path, mode):
    answer = torture(tmp_path, mode, "stop")
    assert answer["events"] > 0 and not answer["losses"]


def test_code_of_the_interpreter_itself_is_in_no_stack(tmp_path, run):
    run(
        """
        import mmap, floodmark.trace
        class Holder:
            def __init__(self):
                self.memory = mmap.mmap(-1, 100_000, flags=mmap.MAP_PRIVATE)
                self.memory.write(b"x" * 100_000)
        def make():
            for _ in range(20):
                Holder()
        with floodmark.trace.Profile(filepath="run.flood", mode="faults", quiet=True):
            make()
        """
    )
    found = tables(tmp_path / "run.flood")
    frames = {(row["function"], row["file"]) for row in found["frame"]}
    assert {("Holder.__init__", "<string>"), ("make", "<string>")} <= frames
    # From Python 3.13 on the interpreter's own code runs around __init__ once such calls are frequent.
    assert ("__init__", "__init__") not in frames


@pytest.mark.parametrize("end", ["stop", "_exit", "kill"])
def test_every_call_has_its_return(tmp_path, end):
    answer = torture(tmp_path, "every", end)
    assert not answer["losses"] and answer["gaps"] == 0
    assert answer["processes"] == 3
    calls = {row["function"].rpartition(".")[2]: row["calls"] for row in answer["functions"]}
    limit = calls["recurse"] - 101 - 2 * 8 * 200 * 21 - 2 * 51
    assert 500 < limit < 10_000, "calls until the recursion was too deep"
    assert calls["body"] == 16 and calls["leaf"] == 1000 and calls["numbers"] == 1200
    assert sum(calls[f"made_{digit}"] for digit in range(10)) == 2000
    # A child returns from a fork that it did not call, and does not return from os._exit; nothing returns from the kill.
    expected = 2 * 2 + (end != "stop")
    if IS_MONITORING:
        assert answer["unbalanced"] == expected
    else:
        # A thread gets its profile function in the middle of threading's own start, so two or three of its calls are missing.
        assert expected <= answer["unbalanced"] <= expected + 3 * 16
