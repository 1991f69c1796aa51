"""Logs of allocations and the debug log: RMM's cases, and those in which RMM loses rows."""

import csv
import os

import pytest

import floodmark as rmm

HEADER = ["Thread", "Time", "Action", "Pointer", "Size", "Stream"]


def rows(path):
    """Action, pointer and size of each row."""
    with open(path, newline="") as file:
        header, *lines = list(csv.reader(file))
    assert header == HEADER
    return [(action, pointer, int(size)) for _, _, action, pointer, size, _ in lines]


@pytest.mark.parametrize("size", [0, 1, 2, 1024, 10**7])
def test_rmm_csv_log(tmp_path, size):
    name = tmp_path / "rmm_log.csv"
    rmm.reinitialize(logging=True, log_file_name=str(name))
    buffer = rmm.DeviceBuffer(size=size)
    pointer = f"{buffer.ptr:#x}"
    del buffer
    expected = [] if size == 0 else [("allocate", pointer, size), ("free", pointer, size)]
    assert rows(tmp_path / "rmm_log.dev0.csv") == expected
    # The name in the guide works too.
    assert rows(name) == expected


def test_rmm_enable_disable_logging(tmp_path):
    name = str(tmp_path / "rmm_log.csv")
    path = str(tmp_path / "rmm_log.dev0.csv")
    rmm.enable_logging(log_file_name=name)
    assert rmm.get_log_filenames() == {0: path}
    rmm.DeviceBuffer(size=10)
    rmm.disable_logging()
    assert rmm.get_log_filenames() == {0: None}
    assert isinstance(rmm.mr.get_current_device_resource(), rmm.mr.CudaMemoryResource)
    rmm.DeviceBuffer(size=20)
    assert [size for *_, size in rows(path)] == [10, 10]


def test_logging_below_statistics_is_found_and_stopped(tmp_path):
    rmm.reinitialize(logging=True, log_file_name=str(tmp_path / "events.csv"))
    rmm.statistics.enable_statistics()
    path = str(tmp_path / "events.dev0.csv")
    assert rmm.get_log_filenames() == {0: path}
    buffer = rmm.DeviceBuffer(size=10)
    rmm.disable_logging()
    assert rmm.get_log_filenames() == {0: None}
    del buffer
    rmm.DeviceBuffer(size=20)
    assert [(action, size) for action, _, size in rows(path)] == [("allocate", 10)]
    assert rmm.statistics.get_statistics().total_bytes == 30


def test_failures_are_logged(tmp_path):
    rmm.reinitialize(
        pool_allocator=True, initial_pool_size=0, maximum_pool_size="1MiB",
        logging=True, log_file_name=str(tmp_path / "log.csv"),
    )
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=2**30)
    assert rows(tmp_path / "log.csv") == [("allocate failure", "(nil)", 2**30)]


def test_names_of_logs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = rmm.mr.CudaMemoryResource()
    for name, path in [("hello.txt", "hello.dev0.txt"), ("log", "log.dev0"), ("a.tar.gz", "a.tar.dev0.gz")]:
        adaptor = rmm.mr.LoggingResourceAdaptor(base, name)
        assert adaptor.get_file_name() == str(tmp_path / path)
        adaptor.flush()
    monkeypatch.setenv("RMM_LOG_FILE", "from_environment.csv")
    assert rmm.mr.LoggingResourceAdaptor(base).get_file_name() == str(tmp_path / "from_environment.dev0.csv")
    for empty in ("", None):
        monkeypatch.delenv("RMM_LOG_FILE") if empty is None else monkeypatch.setenv("RMM_LOG_FILE", empty)
        with pytest.raises(ValueError, match="RMM_LOG_FILE"):
            rmm.mr.LoggingResourceAdaptor(base)
        with pytest.raises(ValueError, match="RMM_LOG_FILE"):
            rmm.enable_logging()


def test_a_log_without_a_name_changes_nothing(monkeypatch):
    monkeypatch.delenv("RMM_LOG_FILE", raising=False)
    called = []
    hook = rmm.register_reinitialize_hook(called.append, 1)
    before = rmm.mr.get_current_device_resource()
    with pytest.raises(ValueError):
        rmm.reinitialize(logging=True)
    rmm.unregister_reinitialize_hook(hook)
    assert rmm.mr.get_current_device_resource() is before
    assert called == []


def test_a_file_of_the_user_is_not_replaced_by_a_link(tmp_path):
    name = tmp_path / "log.csv"
    name.write_text("mine")
    rmm.enable_logging(str(name))
    rmm.DeviceBuffer(size=10)
    assert name.read_text() == "mine"
    assert len(rows(tmp_path / "log.dev0.csv")) == 2


def test_a_log_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError) as error:
        rmm.enable_logging(str(tmp_path / "file" / "log.csv"))
    assert error.value.filename == str(tmp_path / "file" / "log.dev0.csv")


def test_a_killed_process_leaves_every_row(tmp_path, run_until_killed):
    program = """
        import floodmark as rmm
        rmm.reinitialize(logging=True, log_file_name="log.csv")
        kept = []
        for number in range(1, 10**9):
            kept.append(rmm.DeviceBuffer(size=number))
            if number % 3 == 0:
                del kept[:]
            print(number, flush=True)
    """
    returned = run_until_killed(program, 500)
    logged = rows(tmp_path / "log.csv")
    allocated = [size for action, _, size in logged if action == "allocate"]
    assert allocated in (list(range(1, returned + 1)), list(range(1, returned + 2)))
    freed = [size for action, _, size in logged if action == "free"]
    whole = returned - returned % 3
    assert sorted(freed)[:whole] == list(range(1, whole + 1))


def test_a_forked_child_logs_its_own_rows(run, tmp_path):
    run(
        """
        import os, floodmark as rmm
        rmm.reinitialize(logging=True, log_file_name="log.csv")
        rmm.statistics.enable_statistics()
        kept = rmm.DeviceBuffer(size=10)
        child = os.fork()
        if child == 0:
            mine = rmm.DeviceBuffer(size=20)
            assert rmm.statistics.get_statistics().current_bytes == 30
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        kept2 = rmm.DeviceBuffer(size=30)
        assert rmm.statistics.get_statistics().current_bytes == 40
        os._exit(0)
        """,
        FLOODMARK_DEVICE="host",
    )
    with open(tmp_path / "log.csv", newline="") as file:
        logged = [(row["Size"], row["Thread"]) for row in csv.DictReader(file)]
    assert [size for size, _ in logged] == ["10", "20", "30"]
    threads = [thread for _, thread in logged]
    assert threads[0] == threads[2] != threads[1]


def test_rmm_logging_levels():
    for level in rmm.level_enum:
        if level is rmm.level_enum.n_levels:
            continue
        rmm.set_logging_level(level)
        assert rmm.get_logging_level() == level
        assert rmm.should_log(level) == (level is not rmm.level_enum.off)
        rmm.set_flush_level(level)
        assert rmm.get_flush_level() == level
    rmm.flush_logger()


@pytest.mark.parametrize("name", ["trace", "debug", "info", "warn", "error", "critical", "off", "WARNING"])
def test_levels_have_names(name):
    rmm.set_logging_level(name)
    assert rmm.get_logging_level().name == {"WARNING": "warn"}.get(name, name)


@pytest.mark.parametrize("level", [3, "invalid", 100, None, 1.2345, [1, 2, 3]])
def test_invalid_logging_level(level):
    for function in (rmm.set_logging_level, rmm.set_flush_level, rmm.should_log):
        with pytest.raises(TypeError, match="level must be an instance of the level_enum enum"):
            function(level)


def test_the_debug_log_tells_what_resources_do(run, tmp_path):
    code = """
        import floodmark as rmm
        rmm.set_logging_level("debug")
        rmm.reinitialize(pool_allocator=True, initial_pool_size="1MiB", maximum_pool_size="2MiB")
        try:
            rmm.DeviceBuffer(size=2**30)
        except MemoryError:
            pass
    """
    result = run(code)
    assert "cannot allocate 1.00 GiB" in result.stderr
    assert run(code, RMM_DEBUG_LOG_FILE="debug.log").stderr == ""
    assert "cannot allocate 1.00 GiB" in (tmp_path / "debug.log").read_text()
    assert run("import floodmark; floodmark.DeviceBuffer(size=10)").stderr == ""
