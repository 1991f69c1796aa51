"""Jobs on engines give the answers that the command gives on one machine, byte for byte of the JSON."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import floodmark
from floodmark import jobs
from floodmark._command import find_command

QUESTIONS = [
    ("stats",),
    ("leaks",),
    ("lifetimes",),
    ("watermark",),
    ("watermark", "--by", "process,thread,stream,site"),
]


def write_log(path, seed, rows):
    """Write the log of one process, with ties in time, leaks, failures, unknown frees and addresses used twice."""
    chance = random.Random(seed)
    live, micros = [], 0
    with open(path, "w") as log:
        log.write("Thread,Time,Action,Pointer,Size,Stream\n")
        for row in range(rows):
            micros += chance.randrange(40)
            when = f"10:00:{micros // 1000000:02}.{micros % 1000000:06}"
            high = 40 + 30 * (row // (50 + seed * 7) % 2)
            kind = chance.randrange(100)
            if kind == 0:
                action, pointer, size = "allocate failure", "(nil)", 1 << 40
            elif kind == 1:
                action, pointer, size = "free", hex(0x1000 + row * 256), 512
            elif kind == 2 and live:
                at = chance.randrange(len(live))
                live[at] = (live[at][0], chance.randrange(1, 1 << 20))
                action, (pointer, size) = "allocate", live[at]
            elif not live or (len(live) < high and chance.randrange(5)):
                live.append((hex(0x7F0000000000 + row * 4096), 16 * chance.randrange(1, 1 << 16)))
                action, (pointer, size) = "allocate", live[-1]
            else:
                action, (pointer, size) = "free", live.pop(chance.randrange(len(live)))
            thread, stream = seed * 100 + row % 3, hex(chance.choice([0, 0, 0x55D0]))
            log.write(f"{thread},{when},{action},{pointer},{size},{stream}\n")


@pytest.fixture(scope="module", params=[1, 5, 64])
def trace(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    logs = []
    for process in range(1, request.param + 1):
        logs.append(str(folder / f"rank{process:02}.csv"))
        write_log(logs[-1], process, max(100, 6000 // request.param))
    path = str(folder / "job.flood")
    subprocess.run([find_command(), "import", *logs, "-o", path, "--date", "2026-07-01", "-q"], check=True)
    return path


def on_one_machine(trace, question):
    command, *options = question
    return subprocess.run(
        [find_command(), command, trace, *options, "--json"], check=True, capture_output=True, text=True
    ).stdout


def check(job, trace):
    for question in QUESTIONS:
        assert job.json(*question) == on_one_machine(trace, question), question


def test_a_function_that_calls_functions_is_an_engine(trace):
    check(jobs.Job(trace, each=lambda function, items: map(function, reversed(items)), count=3), trace)


@pytest.fixture(scope="module")
def client():
    import distributed

    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        yield client


def test_dask_gives_the_answers_of_one_machine(client, trace):
    check(jobs.Job.dask(trace, client, count=4), trace)


@pytest.mark.parametrize("trace", [64], indirect=True)
def test_a_worker_that_is_killed_changes_nothing(client, trace):
    killed = []

    def kill():
        # One that is at work on a shard.
        while not killed:
            for worker, tasks in client.processing().items():
                if tasks:
                    pid = client.run(os.getpid, workers=[worker])[worker]
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return
            time.sleep(0.001)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    check(jobs.Job.dask(trace, client, count=24), trace)
    killer.join(10)
    assert killed


@pytest.fixture(scope="module")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark import SparkConf, SparkContext

    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.driver.host": "127.0.0.1"}
    conf = SparkConf().setMaster("local[2]").setAppName("floodmark").setAll(list(settings.items()))
    context = SparkContext(conf=conf)
    yield context
    context.stop()


# A task of Spark takes 50 ms and its start half a minute: one job has to do.
@pytest.mark.parametrize("trace", [64], indirect=True)
def test_spark_gives_the_answers_of_one_machine(spark, trace):
    check(jobs.Job.spark(trace, spark, count=3), trace)


@pytest.mark.parametrize("trace", [5], indirect=True)
def test_options_are_those_of_the_command(trace):
    window = {"from_": "+1ms", "to": "+3ms", "kind": "device"}
    found = jobs.Job(trace, count=2, **window).stats()
    assert found.peak_bytes == floodmark.open(trace).stats(**window).peak_bytes


def relative_to(folder, trace, question):
    """Return the answer to a question about a trace that is named as a copy of it would be."""
    command, *options = question
    return subprocess.run(
        [find_command(), command, os.path.basename(trace), *options, "--json"],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
    ).stdout


@pytest.mark.parametrize("trace", [5], indirect=True)
def test_remote_traces_are_read_in_the_parts_that_a_shard_needs(trace, monkeypatch):
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    memory = fsspec.filesystem("memory")
    memory.put(trace, "/bucket/job.flood", recursive=True)
    read = []
    copy = MemoryFileSystem.get_file

    def get_file(self, rpath, lpath, **options):
        read.append(rpath)
        return copy(self, rpath, lpath, **options)

    monkeypatch.setattr(MemoryFileSystem, "get_file", get_file)
    folder = os.path.dirname(trace)
    for url in ["memory://bucket/job.flood", f"file://{trace}"]:
        job = jobs.Job(url, count=3)
        for question in QUESTIONS:
            assert job.json(*question) == relative_to(folder, trace, question), (url, question)
    read.clear()
    one = jobs.shards("memory://bucket/job.flood", 5)[0]
    assert len(jobs.partial(one)) > 0
    parts = [path for path in read if "/event/" in path]
    # Each process has parts of its own, and a shard of one process reads those alone.
    assert len(parts) == 1 < len(os.listdir(os.path.join(trace, "event")))


def test_remote_logs_are_copied(tmp_path):
    write_log(tmp_path / "rank1.csv", 1, 200)
    found = jobs.Job(f"file://{tmp_path}/rank1.csv", count=1).stats()
    assert found.peak_bytes == floodmark.open(tmp_path / "rank1.csv").stats().peak_bytes
    with pytest.raises(floodmark.TraceError, match="no/such.flood"):
        jobs.Job(f"file://{tmp_path}/no/such.flood", count=1).stats()
    with pytest.raises(floodmark.TraceError, match="cannot be read"):
        jobs.Job("nonsense://x/job.flood", count=1).stats()


def test_what_a_shard_cannot_read_is_an_error_with_its_remedy(tmp_path):
    with pytest.raises(floodmark.TraceError, match="nowhere.flood"):
        jobs.Job(tmp_path / "nowhere.flood", count=2).stats()
    with pytest.raises(ValueError):
        jobs.shards("job.flood", 0)
