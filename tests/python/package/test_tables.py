"""Tables of traces and rows of answers, read by pandas, Polars and PyArrow through the Arrow C stream."""

import gc
import os
import pathlib
import shutil
import time

import polars
import pyarrow
import pytest

import floodmark
from floodmark import _native

LOG = """\
Thread,Time,Action,Pointer,Size,Stream
1,10:00:00:000001,allocate,0x1000,1000,0
1,10:00:00:000101,allocate,0x2000,5000,0
2,10:00:00:000201,free,0x1000,1000,0
1,10:00:00:000301,allocate,0x3000,100,0
"""


BUFFERS = 6_000
EVENTS = 2 * BUFFERS + 1


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A trace with buffers that were freed and one that was kept."""
    path = tmp_path_factory.mktemp("recorded") / "run.flood"
    with floodmark.record(path):
        with floodmark.scope("loading"):
            kept = floodmark.DeviceBuffer(size=12345)
        for size in range(1, BUFFERS + 1):
            floodmark.DeviceBuffer(size=size)
    # The first to read it writes the parts.
    assert floodmark.open(path).summary().events == EVENTS
    yield path
    del kept


@pytest.fixture
def trace(recorded, tmp_path):
    return floodmark.open(shutil.copytree(recorded, tmp_path / "run.flood", symlinks=True))


def children():
    """Processes that this one has started and that are not gone."""
    listed = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    return listed.read_text().split()


def test_every_library_reads_the_same_events(trace):
    arrow = trace.events.to_arrow()
    assert arrow.num_rows == EVENTS
    assert arrow.schema.field("time").type == pyarrow.timestamp("ns", "UTC")
    rows = zip(arrow["bytes"].to_pylist(), arrow["action"].to_pylist(), strict=True)
    allocated = [size for size, action in rows if action == "alloc"]
    assert sorted(allocated) == sorted([12345, *range(1, BUFFERS + 1)])
    frame = trace.events.to_polars()
    assert frame.equals(polars.from_arrow(arrow))
    # Consumers that only know the interface.
    assert polars.DataFrame(trace.events).equals(frame)
    assert pyarrow.table(trace.events).equals(arrow)
    pandas = trace.events.to_pandas()
    assert list(pandas.columns) == arrow.schema.names and len(pandas) == EVENTS
    assert pandas["stack"].dtype == "UInt64" and pandas["stack"].isna().sum() == BUFFERS
    assert pandas["action"].value_counts().to_dict() == {"alloc": BUFFERS + 1, "free": BUFFERS}
    assert pandas.loc[pandas["action"] == "alloc", "bytes"].sum() == sum(allocated)


def test_ids_lead_to_rows_of_other_tables(trace):
    events = trace.events.to_polars().filter(bytes=12345)
    stacks, frames = trace.stacks.to_polars(), trace.frames.to_polars()
    inner = events.join(stacks, on="stack").join(frames, on="frame")
    assert inner["function"].to_list() == ["recorded"] and inner["file"][0] == __file__
    assert events.join(trace.scopes.to_polars(), on="scope")["name_right"][0] == "loading"
    assert "loading" in trace.strings.to_polars()["text"]


def test_rows_are_selected_by_time_and_process(trace):
    assert trace.table("event", process=99).to_arrow().num_rows == 0
    assert trace.table("event", process=[1], to="+1h").to_arrow().num_rows == EVENTS
    assert trace.table("event", from_="+1h").to_arrow().num_rows == 0
    with pytest.raises(floodmark.TraceError, match="lists the tables"):
        trace.table("nothing").to_arrow()
    with pytest.raises(floodmark.TraceError):
        trace.table("event", from_="yesterday").to_arrow()


def test_a_table_outlives_the_trace_and_its_files(trace):
    path = trace.path
    reader = pyarrow.RecordBatchReader.from_stream(trace.events)
    first = reader.read_next_batch()
    table = trace.events.to_arrow()
    del trace
    gc.collect()
    shutil.rmtree(path)
    assert table.num_rows == EVENTS and table["bytes"][0].as_py() == 12345
    before = first["bytes"].to_pylist()
    del reader
    gc.collect()
    assert first["bytes"].to_pylist() == before
    first.validate(full=True)
    table.validate(full=True)


def test_a_stream_that_is_released_early_ends_its_command(trace):
    before = children()
    capsule = trace.events.__arrow_c_stream__()
    assert len(children()) == len(before) + 1
    del capsule
    assert children() == before
    reader = pyarrow.RecordBatchReader.from_stream(trace.events)
    reader.read_next_batch()
    reader.close()
    del reader
    assert children() == before


def test_a_command_that_is_killed_is_an_error_and_no_end(trace):
    before = set(children())
    reader = pyarrow.RecordBatchReader.from_stream(trace.events)
    (command,) = set(children()) - before
    os.kill(int(command), 9)
    with pytest.raises((pyarrow.ArrowException, OSError), match="SIGKILL|signal: 9"):
        reader.read_all()


def test_a_big_table_is_streamed_without_copies(trace):
    reader = pyarrow.RecordBatchReader.from_stream(trace.events)
    batches = list(reader)
    sizes = [batch.num_rows for batch in batches]
    assert len(sizes) > 1 and max(sizes) < sum(sizes) == EVENTS
    # The columns of a batch lie side by side, as the command wrote them.
    for batch in batches:
        buffers = [buffer for name in ("time", "thread", "address") for buffer in batch[name].buffers()[1:]]
        addresses = sorted(buffer.address for buffer in buffers)
        assert addresses[0] % 64 == 0 and addresses[-1] - addresses[0] < batch.nbytes


def test_memory_is_freed_with_the_last_that_uses_it():
    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return _native.arrow_stream_of_columns([("text", "str", ["x" * 250_000] * 4), ("n", "int", [1] * 4)])

    for number in range(80):
        if number == 20:
            # Allocators keep some memory once they had it.
            before = _resident()
        # In turn: never taken out of its capsule, never read, read, a column moved away.
        if number % 4 == 0:
            Stream().__arrow_c_stream__()
        elif number % 4 == 1:
            pyarrow.RecordBatchReader.from_stream(Stream()).close()
        elif number % 4 == 2:
            assert pyarrow.table(Stream()).num_rows == 4
        else:
            column = pyarrow.table(Stream())["text"]
            assert column[3].as_py()[:1] == "x"
    del column
    gc.collect()
    # 60 MB went through, 15 in each way.
    assert _resident() - before < 12 << 20


def _resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_recording_that_goes_on_and_one_that_was_killed(tmp_path, run_until_killed):
    with floodmark.record(tmp_path / "live.flood"):
        kept = floodmark.DeviceBuffer(size=777)
        live = floodmark.open(tmp_path / "live.flood").events.to_polars()
        assert live["bytes"].to_list() == [777]
    del kept
    program = """
        import floodmark
        floodmark.record("run.flood").start()
        for number in range(1, 10**9):
            floodmark.DeviceBuffer(size=number)
            print(number, flush=True)
    """
    returned = run_until_killed(program, 300)
    events = floodmark.open(tmp_path / "run.flood").events.to_polars()
    sizes = events.filter(action="alloc")["bytes"].to_list()
    assert sizes in (list(range(1, returned + 1)), list(range(1, returned + 2)))


def test_an_empty_trace_has_empty_tables(tmp_path):
    with floodmark.record(tmp_path / "run.flood"):
        pass
    trace = floodmark.open(tmp_path / "run.flood")
    for name in ("event", "scope", "sample", "output", "log", "subject", "device", "string", "frame", "stack", "call"):
        table = trace.table(name).to_arrow()
        table.validate(full=True)
        assert table.num_rows == 0 and table.num_columns > 1, name
    assert trace.table("process").to_arrow().num_rows == 1
    assert trace.events.to_pandas().empty
    assert len(trace.watermark().blocks) == 0
    assert trace.watermark().blocks.to_polars().is_empty()
    assert trace.timeline()._repr_html_()


def test_other_formats_are_imported_for_their_tables(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    trace = floodmark.open(path)
    events = trace.events
    assert events.to_polars()["bytes"].to_list() == [1000, 5000, 1000, 100]
    folder = pathlib.Path(trace._imported.name)
    del trace
    # The table still needs the imported trace.
    assert events.to_arrow().num_rows == 4
    del events
    gc.collect()
    assert not folder.exists()


def test_rows_of_answers_are_tables(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    trace = floodmark.open(path)
    blocks = trace.watermark().blocks
    table = blocks.to_arrow()
    table.validate(full=True)
    assert table.schema.field("time").type == pyarrow.timestamp("ns", "UTC")
    assert table.select(["bytes", "site", "stack", "resource"]).to_pylist() == [
        {"bytes": 5000, "site": "(no stack)", "stack": [], "resource": None},
        {"bytes": 1000, "site": "(no stack)", "stack": [], "resource": None},
    ]
    assert blocks.to_polars()["bytes"].to_list() == [5000, 1000]
    assert polars.DataFrame(blocks).equals(blocks.to_polars())
    assert list(blocks.to_pandas()["bytes"]) == [5000, 1000]
    assert trace.timeline().to_polars()["live_bytes"].to_list() == [1000, 6000, 5000, 5100]
    assert trace.stats().histogram.to_arrow()["count"].to_pylist() == [1, 1, 1]
    assert blocks[1:].to_dicts() == [blocks.to_dicts()[1]] and blocks[:] == blocks
    assert [block.bytes for block in blocks] == [5000, 1000]


def test_columns_of_every_type_arrive_as_they_are():
    columns = [
        ("int", "int", [-1, None, 2**63 - 1]),
        ("unsigned", "unsigned", [0, 2**64 - 1, None]),
        ("float", "float", [0.5, None, -1.0]),
        ("bool", "bool", [True, None, False]),
        ("text", "str", ["", None, "é\0ü"]),
        ("list", "list[str]", [["a", "b"], None, []]),
    ]

    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return _native.arrow_stream_of_columns(columns)

    table = pyarrow.table(Stream())
    table.validate(full=True)
    assert table.to_pydict() == {name: values for name, _, values in columns}
    assert polars.DataFrame(Stream()).to_dict(as_series=False) == {name: values for name, _, values in columns}
    nine = [(str(index), "bool", [bool(value % 3) for value in range(9)]) for index in range(2)]
    columns[:] = nine
    assert pyarrow.table(Stream())["1"].to_pylist() == nine[1][2]
    for wrong in ([("a", "int", [1]), ("b", "int", [])], [("a", "complex", [1])], [("a\0", "int", [1])]):
        with pytest.raises(ValueError):
            _native.arrow_stream_of_columns(wrong)
    with pytest.raises(OverflowError):
        _native.arrow_stream_of_columns([("a", "int", [2**63])])


def write_command(path, program):
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    return str(path)


def test_what_is_no_table_is_an_error(tmp_path, trace):
    good = tmp_path / "good.arrows"
    trace._run("export", trace.path, "-o", str(good), "--format", "arrow")
    whole = good.read_bytes()

    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return _native.arrow_stream_of_command(["/bin/cat", str(good)])

    assert pyarrow.table(Stream()).num_rows == EVENTS
    with pytest.raises(OSError):
        _native.arrow_stream_of_command(["/no/such/command"])
    with pytest.raises(floodmark.TraceError, match="ended early"):
        _native.arrow_stream_of_command(["/bin/true"])
    with pytest.raises(floodmark.TraceError, match="oh no"):
        _native.arrow_stream_of_command([write_command(tmp_path / "fails", "echo oh no >&2; exit 3")])
    # Every byte of the first messages in turn: an error or a table, and never a crash.
    deadline = time.monotonic() + 30
    for position in range(0, 4000, 29):
        good.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 : 20_000])
        try:
            reader = pyarrow.RecordBatchReader.from_stream(Stream())
            for batch in reader:
                batch.validate(full=True)
        except (floodmark.TraceError, pyarrow.ArrowException, OSError, ValueError, UnicodeDecodeError):
            pass
        assert time.monotonic() < deadline
