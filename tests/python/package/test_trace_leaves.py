"""Functions that call nothing: Python 3.11 runs them with its tracing switched off, and their events are the same."""

import subprocess
import sys
import threading

from test_trace import calls, traced


class Number:
    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Number(self.value + other.value)

    def __getitem__(self, index):
        return plain(index)


def plain(value):
    return value


def add(left, right):
    return left + right


def item(number):
    return number[3]


def fail(value):
    return value.nothing


def numbers():
    for value in (1, 2):
        yield value


def squares(values):
    return [value * value for value in values]


def steps(rows, *functions):
    """Return action, function and line of events, the line as a distance to the function's first."""
    firsts = {function.__qualname__: function.__code__.co_firstlineno for function in functions}
    return [
        (row["action"], row["function"], row["line"] - firsts[row["function"]])
        for row in rows
        if row["function"] in firsts
    ]


def test_functions_that_operators_call_are_recorded(tmp_path):
    def work():
        # Often enough that the interpreter specializes what it runs.
        for _ in range(100):
            add(Number(1), Number(2))
            item(Number(1))

    _, rows = traced(tmp_path, work)
    expected = [
        ("call", "add", 0), ("call", "Number.__add__", 0), ("return", "Number.__add__", 1), ("return", "add", 1),
        ("call", "item", 0), ("call", "Number.__getitem__", 0), ("call", "plain", 0), ("return", "plain", 1),
        ("return", "Number.__getitem__", 1), ("return", "item", 1),
    ]  # fmt: skip
    assert steps(rows, add, item, plain, Number.__add__, Number.__getitem__) == expected * 100
    made = steps(rows, Number.__init__)
    assert made == [("call", "Number.__init__", 0), ("return", "Number.__init__", 1)] * 400


def test_exceptions_and_generators_are_recorded(tmp_path):
    def work():
        try:
            fail(1)
        except AttributeError as error:
            assert "nothing" in str(error)
        assert list(numbers()) == [1, 2]
        generator = numbers()
        next(generator)
        try:
            generator.throw(KeyError)
        except KeyError:
            pass
        assert squares([1, 2, 3]) == [1, 4, 9]

    _, rows = traced(tmp_path, work)
    assert steps(rows, fail) == [("call", "fail", 0), ("exception", "fail", 1)]
    expected = [
        ("call", 0), ("yield", 2), ("resume", 2), ("yield", 2), ("resume", 2), ("return", 1),
        ("call", 0), ("yield", 2), ("resume", 2), ("exception", 2),
    ]  # fmt: skip
    found = [(action, line) for action, _, line in steps(rows, numbers)]
    assert found == expected
    if sys.version_info < (3, 12):
        comprehensions = [row["action"] for row in rows if row["function"].endswith("<listcomp>")]
        assert comprehensions == ["call", "return"]


#: A recursion of Python functions needs no room on the stack of a thread, with a tracer as without.
DEEP = """
import sys, threading
import floodmark.trace

def recurse(levels):
    return levels and recurse(levels - 1)

def leaf(value):
    return value + 1

def work():
    leaf(1)
    recurse(30_000)
    leaf(2)

sys.setrecursionlimit(40_000)
with floodmark.trace.Profile(0, filepath=sys.argv[1], quiet=True):
    threading.stack_size(512 * 1024)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    leaf(3)
"""


def test_a_deep_recursion_does_not_overflow_the_stack_of_a_thread(tmp_path):
    command = [sys.executable, "-c", DEEP, str(tmp_path / "calls.flood")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result
    rows = calls(tmp_path / "calls.flood")
    for action in ("call", "return"):
        found = [row["function"] for row in rows if row["action"] == action]
        assert (found.count("recurse"), found.count("leaf")) == (30_001, 3)


def test_threads_take_turns_within_functions_that_call_nothing(tmp_path):
    def spin():
        total = 0
        for first in range(300):
            for second in range(1000):
                total += first * second
        return total

    def work():
        threads = [threading.Thread(target=spin) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    _, rows = traced(tmp_path, work)
    found = [(row["action"], row["thread"]) for row in rows if row["function"].endswith("spin")]
    assert sorted(action for action, _ in found) == ["call"] * 4 + ["return"] * 4
    assert len({thread for _, thread in found}) == 4
