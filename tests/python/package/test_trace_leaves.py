"""Functions that call nothing: Python 3.11 runs them with its tracing switched off, and their events are the same."""

import subprocess
import sys
import threading

import pytest

import floodmark.trace
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


def test_a_function_that_never_begins_is_no_event(tmp_path, run):
    """The frame that is one too many fails before it begins."""
    result = run(
        """
        import floodmark.trace
        count = 0
        def leaf():
            global count
            count += 1
        def recurse():
            leaf()
            recurse()
        with floodmark.trace.Profile(0, filepath="calls.flood", quiet=True):
            for _ in range(3):
                try:
                    recurse()
                except RecursionError:
                    pass
                # Whichever of the two is the one too many.
                try:
                    (lambda: recurse())()
                except RecursionError:
                    pass
        print(count)
        """
    )
    rows = [row["action"] for row in calls(tmp_path / "calls.flood") if row["function"] == "leaf"]
    assert rows.count("call") == rows.count("return") == int(result.stdout)
    assert len(rows) == 2 * int(result.stdout)


class Act:
    """Calls a function when it is added to."""

    def __init__(self, act):
        self.act = act

    def __add__(self, other):
        return self.act()


def add_twice(first, second):
    first + 1
    return second + 1


def test_a_profile_function_set_meanwhile_has_the_rest_of_the_events(tmp_path):
    seen = []

    def other(frame, event, argument):
        seen.append((event, frame.f_code.co_name))

    def work():
        try:
            add_twice(Act(lambda: sys.setprofile(other)), Act(lambda: plain(1)))
        finally:
            sys.setprofile(None)

    traced(tmp_path, work)
    assert [step for step in seen if step[1] in ("add_twice", "plain")] == [
        ("call", "plain"), ("return", "plain"), ("return", "add_twice"),
    ]  # fmt: skip


def test_a_trace_may_end_within_a_function_that_calls_nothing(tmp_path):
    for number, end in enumerate((lambda: profile.stop(), lambda: sys.setprofile(None))):
        profile = floodmark.trace.Profile(0, filepath=tmp_path / f"{number}.flood", quiet=True).start()
        try:
            assert add_twice(Act(end), Act(lambda: plain(5))) == 5
        finally:
            profile.stop()
        assert sys.getprofile() is None
        rows = calls(tmp_path / f"{number}.flood")
        assert [row["action"] for row in rows if row["function"] == "add_twice"][:1] == ["call"]
        # Nothing of it is left: another trace has all events.
        _, rows = traced(tmp_path / str(number), lambda: add_twice(Act(int), Act(lambda: plain(5))))
        assert steps(rows, add_twice) == [("call", "add_twice", 0), ("return", "add_twice", 2)]
        assert steps(rows, plain) == [("call", "plain", 0), ("return", "plain", 1)]


def test_forks_and_signals_within_functions_that_call_nothing(tmp_path, run):
    run(
        """
        import os, signal, floodmark.trace
        class Fork:
            def __add__(self, other):
                return os.fork()
        def fork(value):
            return value + 1
        def spin():
            while not stopped:
                pass
            return 1
        def handle(number, frame):
            global stopped
            stopped = True
        signal.signal(signal.SIGALRM, handle)
        with floodmark.trace.Profile(0, filepath="calls.flood", quiet=True):
            stopped = False
            pid = fork(Fork())
            if pid == 0:
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                spin()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            spin()
        """
    )
    found = [(row["action"], row["function"]) for row in calls(tmp_path / "calls.flood")]
    for name, called in ("fork", 1), ("spin", 2), ("handle", 2):
        assert found.count(("call", name)) == called
        assert found.count(("return", name)) == 2


@pytest.mark.parametrize("stop", ["profile.stop()", "pass"])
def test_threads_that_outlive_the_interpreter_end_quietly(run, stop):
    """Python ends them by unwinding their stacks, on which the frames that began in a trace are."""
    result = run(
        f"""
        import threading, time, floodmark.trace
        class Slow:
            def __add__(self, other):
                time.sleep(0.001)
        def leaf(value):
            value + 1
            return value
        def work():
            while True:
                leaf(Slow())
        def spin():
            while True:
                pass
        profile = floodmark.trace.Profile(0, filepath="calls.flood", quiet=True).start()
        for target in (work, spin, work, spin):
            threading.Thread(target=target, daemon=True).start()
        time.sleep(0.05)
        {stop}
        """
    )
    assert result.stderr == ""


@pytest.mark.parametrize("how", ["settrace", "setprofile", "ignored"])
def test_a_deep_recursion_of_a_thread_without_events_does_not_overflow_its_stack(run, how):
    run(
        f"""
        import sys, threading, floodmark.trace
        from floodmark import _native
        def recurse(levels):
            return levels and recurse(levels - 1)
        def work():
            if {how!r} == "ignored":
                _native.ignore_thread()
            elif {how!r} == "settrace":
                sys.settrace(lambda *_: None)
            else:
                sys.setprofile(None)
            recurse(30_000)
        sys.setrecursionlimit(40_000)
        with floodmark.trace.Profile(0, filepath="calls.flood", quiet=True):
            threading.stack_size(512 * 1024)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        """
    )


def test_an_audit_hook_that_refuses_profile_functions_does_not_harm_the_program(tmp_path, run):
    result = run(
        """
        import _thread, sys, time, floodmark.trace
        is_refused = False
        def hook(event, arguments):
            if is_refused and event in ("sys.setprofile", "sys.monitoring.register_callback"):
                raise PermissionError("refused")
        sys.addaudithook(hook)
        done = []
        def leaf(value):
            return value
        def other():
            done.append(1)
            while len(done) < 2:
                time.sleep(0.001)
            done.append(1)
        with floodmark.trace.Profile(0, filepath="calls.flood", quiet=True):
            is_refused = True
            _thread.start_new_thread(other, ())
            while not done:
                time.sleep(0.001)
            for _ in range(30):
                leaf(1)
                time.sleep(0.001)
            is_refused = False
            done.append(1)
            while len(done) < 3:
                time.sleep(0.001)
        if sys.version_info < (3, 12):
            is_refused = True
            try:
                floodmark.trace.Profile(0, filepath="refused.flood", quiet=True).start()
            except PermissionError as error:
                print(error)
            is_refused = False
            assert sys.getprofile() is None
            with floodmark.trace.Profile(0, filepath="again.flood", quiet=True):
                leaf(2)
        """
    )
    assert result.stderr == ""
    found = [row["function"] for row in calls(tmp_path / "calls.flood")]
    assert found.count("leaf") == 60


#: An evaluation function of another tool, which calls the one before it.
OTHER = """
typedef void *(*Evaluate)(void *thread, void *frame, int is_thrown);
void *PyInterpreterState_Get(void);
Evaluate _PyInterpreterState_GetEvalFrameFunc(void *interpreter);
void _PyInterpreterState_SetEvalFrameFunc(void *interpreter, Evaluate function);
static Evaluate previous;
static long count;
static void *evaluate(void *thread, void *frame, int is_thrown) {
    count++;
    return previous(thread, frame, is_thrown);
}
Evaluate current(void) { return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()); }
void install(void) {
    previous = current();
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), evaluate);
}
void put_back(void) { _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), previous); }
int is_there(void) { return current() == evaluate; }
long counted(void) { return count; }
"""


@pytest.mark.parametrize("order", ["before", "during", "put back during", "put back after"])
def test_evaluation_functions_of_other_tools_stay(tmp_path, run, order):
    (tmp_path / "other.c").write_text(OTHER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "other.so", "other.c"], cwd=tmp_path, check=True)
    run(
        f"""
        import ctypes, floodmark.trace
        other = ctypes.PyDLL("./other.so")
        other.current.restype = ctypes.c_void_p
        order = {order!r}
        plain = other.current()
        def leaf(value):
            return value
        def work():
            for _ in range(100):
                leaf(1)
        if order == "before":
            other.install()
        profile = floodmark.trace.Profile(0, filepath="calls.flood", quiet=True).start()
        work()
        if order != "before":
            other.install()
        before = other.counted()
        work()
        assert other.counted() - before >= 101
        if order == "put back during":
            other.put_back()
            work()
        profile.stop()
        if order == "put back during":
            assert other.current() == plain
        else:
            assert other.is_there()
            before = other.counted()
            work()
            assert other.counted() - before >= 101
            other.put_back()
            # If ours is put back after the trace has ended, it goes at the next call.
            work()
            assert other.current() == plain
        """
    )
    found = [(row["action"], row["function"]) for row in calls(tmp_path / "calls.flood")]
    times = 3 if order == "put back during" else 2
    assert found.count(("call", "leaf")) == found.count(("return", "leaf")) == 100 * times
