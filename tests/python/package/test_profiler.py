"""The profiler: RMM's cases, and those in which RMM counts wrongly."""

import asyncio
import inspect
import re
import threading

import pytest

import floodmark as rmm
from floodmark.statistics import ProfilerRecords, default_profiler_records, profiler


def figures(records):
    """Calls, total and peak by the last part of each name."""
    rows = records.records.items()
    short = lambda name: re.sub(r".*[(.>]([^()]+)\)$", r"\1", name)  # noqa: E731
    return {short(name): (row.num_calls, row.memory_total, row.memory_peak) for name, row in rows}


@pytest.fixture
def records():
    return ProfilerRecords()


def test_profiler(stats_mr, records):
    assert records.records == {}
    assert "No data" in records.report()

    @profiler(records=records)
    def f1():
        b1 = rmm.DeviceBuffer(size=10)
        b2 = rmm.DeviceBuffer(size=10)
        del b1
        return b2

    b1, b2 = f1(), f1()
    assert figures(records) == {"f1": (2, 40, 20)}

    @profiler(records=records)
    def f2():
        b1 = rmm.DeviceBuffer(size=10)

        @profiler(records=records)
        def g2(b1):
            b2 = rmm.DeviceBuffer(size=10)
            del b1
            return b2

        return g2(b1)

    f2(), f2(), f2()
    assert figures(records)["f2"] == (3, 60, 20)
    assert figures(records)["g2"] == (3, 30, 10)

    @profiler(records=records)
    def f3():
        return [rmm.DeviceBuffer(size=100) for _ in range(100)]

    f3()
    assert figures(records)["f3"] == (1, 10000, 10000)

    @profiler()
    def f4():
        return [rmm.DeviceBuffer(size=10) for _ in range(10)]

    f4()
    assert figures(default_profiler_records) == {"f4": (1, 100, 100)}

    with profiler(name="b1 and b2"):
        b1 = rmm.DeviceBuffer(size=100)
        b2 = rmm.DeviceBuffer(size=100)
        with profiler(name="del b1 and b2"):
            del b1, b2
    assert figures(default_profiler_records)["b1 and b2"] == (1, 200, 200)
    assert figures(default_profiler_records)["del b1 and b2"] == (1, 0, 0)


def test_names_are_file_line_and_function(stats_mr, records):
    @profiler(records=records)
    def function():
        pass

    class Class:
        @profiler(records=records)
        def method(self):
            return self

        @profiler(records=records)
        @classmethod
        def of_class(cls):
            return cls

        @staticmethod
        @profiler(records=records)
        def static():
            return "static"

    function()
    instance = Class()
    assert instance.method() is instance
    assert Class.of_class() is Class
    assert Class.static() == "static"
    first = function.__wrapped__.__code__.co_firstlineno
    prefix = "test_names_are_file_line_and_function.<locals>."
    names = list(records.records)
    assert names[0] == f"{__file__}:{first}({prefix}function)"
    assert [re.sub(r".*\((.*)\)", r"\1", name) for name in names[1:]] == [
        f"{prefix}Class.method",
        f"{prefix}Class.of_class",
        f"{prefix}Class.static",
    ]


def test_arguments_pass_through(stats_mr, records):
    def decorated(function):
        return profiler(records=records, name=function.__name__)(function)

    @decorated
    def plain(func, /, size, enter=3, leave=[]):  # noqa: B006
        assert leave == []
        return func, size, enter, (lambda: size)()

    @decorated
    def only_names(one, *rest, two=2, **more):
        return one, rest, two, more

    assert plain(1, 2) == (1, 2, 3, 2)
    assert plain(1, size=2, enter=4) == (1, 2, 4, 2)
    assert only_names(1, 5, two=6, x=7) == (1, (5,), 6, {"x": 7})
    assert str(inspect.signature(plain)) == "(func, /, size, enter=3, leave=[])"
    for wrong in [lambda: plain(1), lambda: plain(func=1, size=2), lambda: plain(1, 2, other=3)]:
        with pytest.raises(TypeError, match=r"plain\(\)"):
            wrong()
    assert {name: row[0] for name, row in figures(records).items()} == {"plain": 2, "only_names": 1}


def test_code_without_source_can_be_decorated(stats_mr, records):
    scope = {"profiler": profiler, "records": records, "rmm": rmm}
    exec("@profiler(records=records)\ndef f():\n    return rmm.DeviceBuffer(size=5)\n", scope)
    scope["f"]()
    assert list(records.records) == ["<string>:1(f)"]
    profiler(records=records)(len)([])
    assert list(records.records)[1] == "builtins(len)"


def test_a_context_manager_needs_a_name():
    with pytest.raises(ValueError, match="When profiler is used as a context manager, a name must be provided"):
        with profiler():
            pass


def test_exceptions_and_results_pass_through(stats_mr, records):
    @profiler(records=records, name="fails")
    def fails():
        rmm.DeviceBuffer(size=10)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails()
    with pytest.raises(KeyError), profiler(records=records, name="block"):
        raise KeyError
    assert figures(records) == {"fails": (1, 10, 10), "block": (1, 0, 0)}


def test_recursion_counts_memory_once(stats_mr, records):
    @profiler(records=records, name="recurse")
    def recurse(depth):
        kept = rmm.DeviceBuffer(size=100)
        return [kept, *recurse(depth - 1)] if depth > 1 else [kept]

    assert len(recurse(4)) == 4
    assert figures(records) == {"recurse": (4, 400, 400)}


def test_threads_keep_their_own_figures(stats_mr, records):
    entered, allocated = threading.Barrier(2), threading.Barrier(2)

    def work(name, size):
        with profiler(records=records, name=name):
            entered.wait(30)
            buffer = rmm.DeviceBuffer(size=size)
            allocated.wait(30)
        del buffer

    threads = [threading.Thread(target=work, args=pair) for pair in (("a", 1000), ("b", 7))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert figures(records) == {"a": (1, 1000, 1000), "b": (1, 7, 7)}


def test_one_context_in_many_threads(stats_mr, records):
    context = profiler(records=records, name="shared")

    def work():
        for _ in range(200):
            with context:
                rmm.DeviceBuffer(size=10)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert figures(records) == {"shared": (1600, 16000, 10)}


def test_coroutines_that_take_turns_keep_their_own_figures(stats_mr, records):
    @profiler(records=records, name="fetch")
    async def fetch(size):
        first = rmm.DeviceBuffer(size=size)
        await asyncio.sleep(0)
        second = rmm.DeviceBuffer(size=size)
        await asyncio.sleep(0)
        del first
        return second

    @profiler(records=records, name="other")
    async def other():
        await asyncio.sleep(0)
        rmm.DeviceBuffer(size=1)

    async def main():
        return await asyncio.gather(fetch(100), other(), fetch(30))

    results = asyncio.run(main())
    assert [result and result.size for result in results] == [100, None, 30]
    assert figures(records) == {"other": (1, 1, 1), "fetch": (2, 260, 200)}


def test_generators_count_as_one_call_of_what_they_allocate(stats_mr, records):
    @profiler(records=records, name="chunks")
    def chunks(count):
        """Documented."""
        for number in range(count):
            got = yield rmm.DeviceBuffer(size=10 + number)
            assert got is None or got == number
        return "done"

    generator = chunks(2)
    assert (chunks.__name__, chunks.__doc__) == ("chunks", "Documented.")
    first = next(generator)
    unrelated = rmm.DeviceBuffer(size=5000)
    second = generator.send(0)
    assert (first.size, second.size) == (10, 11)
    with pytest.raises(StopIteration) as end:
        next(generator)
    assert end.value.value == "done"
    assert figures(records) == {"chunks": (1, 21, 21)}
    # One that is closed early is a call too, one that never began is none.
    abandoned = chunks(5)
    next(abandoned)
    abandoned.close()
    chunks(1)
    assert figures(records)["chunks"] == (2, 31, 21)
    del unrelated


def test_exceptions_reach_generators(stats_mr, records):
    @profiler(records=records, name="catches")
    def catches():
        try:
            yield 1
        except KeyError:
            yield rmm.DeviceBuffer(size=3)

    generator = catches()
    assert next(generator) == 1
    assert generator.throw(KeyError("x")).size == 3
    del generator
    assert figures(records) == {"catches": (1, 3, 3)}


def test_async_generators(stats_mr, records):
    @profiler(records=records, name="stream")
    async def stream():
        for _ in range(3):
            await asyncio.sleep(0)
            yield rmm.DeviceBuffer(size=4)

    async def main():
        sizes = []
        async for buffer in stream():
            rmm.DeviceBuffer(size=1000)
            sizes.append(buffer.size)
        return sizes

    assert asyncio.run(main()) == [4, 4, 4]
    calls, total, peak = figures(records)["stream"]
    assert (calls, total) == (1, 12)
    assert peak in (4, 8)  # the loop may still hold the buffer before


def test_enabling_inside_a_profiled_function_is_fine(records):
    @profiler(records=records, name="enables")
    def enables():
        rmm.statistics.enable_statistics()
        return rmm.DeviceBuffer(size=10)

    enables()
    assert figures(records) == {}
    enables()
    assert figures(records) == {"enables": (1, 10, 10)}


def test_other_resources_inside_a_profiled_function_are_fine(stats_mr, records):
    before = rmm.mr.get_current_device_resource()
    with profiler(records=records, name="stacks"):
        rmm.DeviceBuffer(size=10)
        rmm.mr.set_current_device_resource(rmm.mr.TrackingResourceAdaptor(before))
        rmm.DeviceBuffer(size=20)
    rmm.mr.set_current_device_resource(before)
    assert figures(records) == {"stacks": (1, 30, 20)}


def test_without_statistics_nothing_is_recorded(records):
    with profiler(records=records, name="off"):
        rmm.DeviceBuffer(size=10)
    assert records.records == {}


def test_report_columns(records):
    records.add("a", rmm.statistics.Statistics(0, 0, 5, 0, 2_000_000, 0))
    records.add("b", rmm.statistics.Statistics(0, 0, 9, 0, 7, 0))
    records.add("b", rmm.statistics.Statistics(0, 0, 3, 0, 1, 0))
    assert str(records) == records.report()
    assert records.report().splitlines()[-2:] == [
        "     2               9               8  b",
        "     1               5       2,000,000  a",
    ]
    assert records.report(ordered_by="memory_total").splitlines()[-2].endswith("  a")
    assert records.report(ordered_by="num_calls").splitlines()[-2].endswith("  b")
    with pytest.raises(AttributeError):
        records.report(ordered_by="size")
    assert repr(records).startswith("ProfilerRecords({'a': ProfilerRecords.MemoryRecord(num_calls=1, ")
    assert isinstance(rmm.statistics.profiler_records(), ProfilerRecords)


def test_blocks_in_tasks_that_take_turns_keep_their_own_figures(stats_mr, records):
    async def task(name, size, inner):
        with profiler(records=records, name=name):
            first = rmm.DeviceBuffer(size=size)
            await asyncio.sleep(0)
            with profiler(records=records, name=inner):
                second = rmm.DeviceBuffer(size=size)
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        return first, second

    async def main():
        with profiler(records=records, name="main"):
            # Tasks that a block starts belong to it.
            return await asyncio.gather(task("a", 1000, "a inner"), task("b", 7, "b inner"))

    asyncio.run(main())
    assert figures(records) == {
        "a inner": (1, 1000, 1000),
        "b inner": (1, 7, 7),
        "a": (1, 2000, 2000),
        "b": (1, 14, 14),
        "main": (1, 2014, 2014),
    }


def test_a_task_that_outlives_its_block_does_not_count_for_it(stats_mr, records):
    async def late(gate):
        await gate.wait()
        return rmm.DeviceBuffer(size=500)

    async def main():
        gate = asyncio.Event()
        with profiler(records=records, name="starts"):
            task = asyncio.create_task(late(gate))
            rmm.DeviceBuffer(size=10)
            await asyncio.sleep(0)
        gate.set()
        with profiler(records=records, name="waits"):
            await task

    asyncio.run(main())
    assert figures(records) == {"starts": (1, 10, 10), "waits": (1, 0, 0)}


def test_blocks_around_an_event_loop_count_all_of_it(stats_mr, records):
    async def main():
        with profiler(records=records, name="inside"):
            return rmm.DeviceBuffer(size=30)

    with profiler(records=records, name="around"):
        asyncio.run(main())
    assert figures(records) == {"inside": (1, 30, 30), "around": (1, 30, 30)}
