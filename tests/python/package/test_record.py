"""Recording into a trace, read back by the command."""

import asyncio
import json
import os
import shutil
import subprocess
import threading

import pytest

import floodmark

COMMAND = os.environ.get("FLOODMARK") or shutil.which("floodmark")


def ask(*arguments):
    assert COMMAND, "there is no floodmark command; set FLOODMARK to its path"
    result = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def load():
    return floodmark.DeviceBuffer(size=3_000_000)


def test_allocations_have_python_stacks_and_scopes(tmp_path):
    path = tmp_path / "run.flood"
    before = floodmark.mr.get_current_device_resource()
    with floodmark.record(path) as recording:
        assert recording.path == str(path)
        with floodmark.scope("loading"):
            kept = load()
        floodmark.mark("loaded")
        floodmark.DeviceBuffer(size=1000)
    assert floodmark.mr.get_current_device_resource() is before
    floodmark.DeviceBuffer(size=77)
    stats = json.loads(ask("stats", path, "--json"))
    text = json.dumps(stats)
    assert "3001000" in text and "3001077" not in text
    watermark = ask("watermark", path)
    assert "load" in watermark and "test_record.py" in watermark
    assert "loading" in ask("watermark", path, "--by", "scope")
    # Frames of the package itself are left out.
    assert "recording.py" not in watermark
    del kept


def test_a_killed_process_leaves_every_allocation(tmp_path, run_until_killed):
    program = """
        import floodmark
        floodmark.record("run.flood").start()
        kept = []
        for number in range(1, 10**9):
            kept.append(floodmark.DeviceBuffer(size=number))
            print(number, flush=True)
    """
    returned = run_until_killed(program, 500)
    ask("export", tmp_path / "run.flood", "-o", tmp_path / "log.csv")
    sizes = [int(row.split(",")[4]) for row in (tmp_path / "log.csv").read_text().splitlines()[1:]]
    assert sizes in (list(range(1, returned + 1)), list(range(1, returned + 2)))


def test_an_existing_trace_is_replaced_only_by_force(tmp_path):
    path = tmp_path / "run.flood"
    with floodmark.record(path):
        pass
    with pytest.raises(FileExistsError, match="force=True"):
        floodmark.record(path).start()
    with floodmark.record(path, force=True):
        pass
    other = tmp_path / "precious"
    other.mkdir()
    (other / "thesis.txt").touch()
    with pytest.raises(FileExistsError, match="is no trace"):
        floodmark.record(other, force=True).start()
    assert other.is_dir()


def test_a_recording_inside_another_is_part_of_it(tmp_path):
    with floodmark.record(tmp_path / "outer.flood") as outer:
        with floodmark.record(tmp_path / "inner.flood") as inner:
            assert inner.path == outer.path
        assert floodmark._native.is_recording()
    assert not floodmark._native.is_recording()
    assert not (tmp_path / "inner.flood").exists()
    outer.stop()


def test_scopes_decorate_functions_and_are_entered_again(tmp_path):
    step = floodmark.scope("step")

    @step
    def once():
        return floodmark.DeviceBuffer(size=1000)

    @floodmark.scope(name="fetch")
    async def fetch():
        return floodmark.DeviceBuffer(size=2000)

    @floodmark.scope("chunks")
    def chunks():
        yield floodmark.DeviceBuffer(size=4000)

    kept = []
    with step:
        # Entered before the recording began, so not part of it.
        with floodmark.record(tmp_path / "run.flood"):
            with step, step:
                kept.append(floodmark.DeviceBuffer(size=500))
            kept += [once(), asyncio.run(fetch()), *chunks()]
            threads = [threading.Thread(target=lambda: kept.append(once())) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            outside = floodmark.DeviceBuffer(size=8000)
    with floodmark.record(tmp_path / "other.flood"), floodmark.scope("other"):
        kept.append(floodmark.DeviceBuffer(size=70))
    assert (once.__name__, step.name, repr(step)) == ("once", "step", "floodmark.scope('step')")
    text = ask("watermark", tmp_path / "run.flood", "--by", "scope", "--json")
    held = {group["key"]: group["bytes"] for group in json.loads(text)["groups"][0]["groups"]}
    assert held == {"step": 3000, "step / step": 500, "fetch": 2000, "chunks": 4000, "(none)": 8000}
    assert "other" in ask("watermark", tmp_path / "other.flood", "--by", "scope")
    del outside
    for wrong in [(), (1,), ("a", "b")]:
        with pytest.raises(TypeError):
            floodmark.scope(*wrong)
    with pytest.raises(TypeError, match="unexpected keyword argument 'title'"):
        floodmark.scope(title="a")


def test_scopes_that_are_left_in_another_order_end_all_the_same(tmp_path):
    path = tmp_path / "run.flood"
    first, second = floodmark.scope("first"), floodmark.scope("second")
    with floodmark.record(path):
        # As coroutines do that take turns on a thread.
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        inside = floodmark.DeviceBuffer(size=2_000_000)
        second.__exit__(None, None, None)
        outside = floodmark.DeviceBuffer(size=5_000_000)
    rows = [json.loads(line) for line in ask("read", path, "--samples", "--json").splitlines()]
    scopes = [row for row in rows if row["table"] == "scope"]
    assert [row["action"] for row in scopes] == ["enter", "enter", "exit", "exit"]
    events = floodmark.open(path).events.to_arrow().to_pylist()
    by_size = {event["bytes"]: event["scope"] for event in events if event["action"] == "alloc"}
    assert by_size[2_000_000] and not by_size[5_000_000], by_size
    del inside, outside


def test_scopes_and_marks_without_a_recording_are_nothing():
    with floodmark.scope("nothing"):
        floodmark.mark("nothing")


def test_resources_that_are_replaced_are_recorded(tmp_path):
    with floodmark.record(tmp_path / "run.flood", stacks=False):
        floodmark.reinitialize(pool_allocator=True, initial_pool_size="1MiB", maximum_pool_size="8MiB")
        floodmark.DeviceBuffer(size=12345)
    assert "12345" in ask("stats", tmp_path / "run.flood", "--json")


def test_a_trace_is_opened_and_asked(tmp_path):
    path = tmp_path / "run.flood"
    with floodmark.record(path):
        kept = load()
    trace = floodmark.open(path)
    assert repr(trace) == f"floodmark.open({str(path)!r})"
    assert trace.ask("stats")["schema"].startswith("floodmark.stats/")
    assert "load" in trace.watermark().blocks[0].site
    assert trace.leaks()
    assert "Peak 2.86 MiB" in trace.text("watermark")
    with pytest.raises(floodmark.TraceError):
        trace.ask("watermark", "--no-such-option")
    with pytest.raises(FileNotFoundError):
        floodmark.open(tmp_path / "nothing.flood")
    del kept


def test_scopes_of_async_generators_are_those_of_their_steps(tmp_path):
    @floodmark.scope("stream")
    async def stream():
        for size in (1000, 2000):
            kept = floodmark.DeviceBuffer(size=size)
            await asyncio.sleep(0)
            yield kept

    async def main():
        items = stream()
        async for item in items:
            floodmark.DeviceBuffer(size=item.size + 1)
        broken = stream()
        await broken.__anext__()
        with pytest.raises(KeyError):
            await broken.athrow(KeyError)
        closed = stream()
        await closed.__anext__()
        await closed.aclose()

    with floodmark.record(tmp_path / "run.flood"):
        asyncio.run(main())
    events = floodmark.open(tmp_path / "run.flood").events.to_arrow().to_pylist()
    scopes = {event["bytes"]: bool(event["scope"]) for event in events if event["action"] == "alloc"}
    assert scopes == {1000: True, 1001: False, 2000: True, 2001: False}
