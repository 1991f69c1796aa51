"""Questions to jobs of many processes, on an engine that runs functions on many machines.

A job is one or more traces that all machines can read. It is divided by process into shards; each is read by itself,
what was found is merged, and the answers are those that the command gives for the whole job on one machine:

>>> import floodmark, floodmark.jobs, tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     with floodmark.record(f"{folder}/run.flood"):
...         buffer = floodmark.DeviceBuffer(size=3_000_000)
...     floodmark.jobs.Job(f"{folder}/run.flood", count=2).watermark().peak_bytes
3000000

On an engine: ``Job.dask(paths, client)``, ``Job.spark(paths, context)``, ``Job.ray(paths)``. Any other one needs a
function that calls a function for each item of a list: ``Job(paths, each=...)``. Workers need this package and its
command; what travels are bytes.

Paths may be URLs (``s3://bucket/job.flood``): with fsspec and the package for the scheme installed, each task copies the
parts that hold its processes, and no others.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass

from floodmark._command import find_command
from floodmark._native import TraceError
from floodmark._remote import local_copies
from floodmark.answers import Leaks, Stats, Watermark
from floodmark.reading import _options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Protocol, TypeVar

    Item = TypeVar("Item")

    class Engine(Protocol):
        """What runs functions."""

        def each(self, function: Callable[[Item], bytes], items: Sequence[Item]) -> list[bytes]: ...

        def reduce(
            self, function: Callable[[Item], bytes], items: Sequence[Item], merge: Callable[[list[bytes]], bytes]
        ) -> bytes: ...


__all__ = ["Job", "Shard", "answer", "merge", "partial", "shards"]

# Partial results that one task merges.
_GROUP = 16


@dataclass(frozen=True)
class Shard:
    """Some processes of a job: what one task reads."""

    paths: tuple[str, ...]
    index: int
    count: int
    options: tuple[str, ...] = ()


def shards(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], count: int, **options: Any) -> list[Shard]:
    """Divide a job into shards of about the same number of events.

    ``options`` are those of ``floodmark partial``: filters, ``churn``, ``per`` and ``warm_up``, ``date``. A task should
    have seconds of work: 50 million events, or 256 MB of a trace.
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    names = tuple(os.fspath(path) for path in paths)
    if count < 1:
        raise ValueError("count must be at least 1")
    return [Shard(names, index, count, tuple(_options(options))) for index in range(count)]


def partial(shard: Shard) -> bytes:
    """Read a shard and return what was found, as bytes that :func:`merge` takes."""
    return _read(shard, *shard.options)


def merge(results: Sequence[bytes]) -> bytes:
    """Put partial results together, in any order and grouping."""
    return _merged(results)[0]


def answer(shard: Shard, job: bytes) -> bytes:
    """Answer for one shard what a merged result asks for."""
    with tempfile.TemporaryDirectory(prefix="floodmark-") as folder:
        path = _write(folder, "job", job)
        # How logs are read; what is selected is part of the job.
        reading = [option for option in shard.options if option.startswith(("--date", "--lenient"))]
        return _read(shard, "--job", path, *reading)


def _read(shard: Shard, *options: str) -> bytes:
    which = f"--shard={shard.index}/{shard.count}"

    def event_files(paths: Sequence[str], folder: str) -> list[list[str]]:
        files: list[list[str]] = [[] for _ in paths]
        for line in _run("partial", *paths, which, "--list", folder=folder).decode().splitlines():
            number, file = line.split(" ", 1)
            files[int(number)].append(file)
        return files

    needs_rows = any(option.startswith("--per") for option in shard.options)
    with local_copies(shard.paths, needs_rows, event_files) as (paths, folder):
        return _run("partial", *paths, which, "-o", "-", *options, folder=folder)


def _answer_to(job: bytes, shard: Shard) -> bytes:
    return answer(shard, job)


def _merged(results: Sequence[bytes]) -> tuple[bytes, dict[str, Any]]:
    import json

    with tempfile.TemporaryDirectory(prefix="floodmark-") as folder:
        paths = [_write(folder, f"part{number}", result) for number, result in enumerate(results)]
        out = os.path.join(folder, "merged")
        state: dict[str, Any] = json.loads(_run("merge", *paths, "-o", out, "--json"))
        with open(out, "rb") as file:
            return file.read(), state


def _write(folder: str, name: str, data: bytes) -> str:
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def _run(*words: str, folder: str | None = None) -> bytes:
    ran = subprocess.run([find_command(), "--quiet", *words], capture_output=True, check=False, cwd=folder)
    if ran.returncode != 0:
        raise TraceError(ran.stderr.decode(errors="replace").strip())
    return ran.stdout


class _Each:
    """An engine made of a function that calls a function for each item."""

    def __init__(self, each: Callable[..., Iterable[bytes]]) -> None:
        self._each = each

    def each(self, function: Callable[[Item], bytes], items: Sequence[Item]) -> list[bytes]:
        return list(self._each(function, items))

    def reduce(
        self, function: Callable[[Item], bytes], items: Sequence[Item], merge: Callable[[list[bytes]], bytes]
    ) -> bytes:
        results = self.each(function, items)
        while len(results) > 1:
            groups = [results[at : at + _GROUP] for at in range(0, len(results), _GROUP)]
            results = self.each(merge, groups)
        return results[0]


class _Dask:
    def __init__(self, client: Any) -> None:
        self._client = client

    def each(self, function: Callable[[Item], bytes], items: Sequence[Item]) -> list[bytes]:
        # A trace may have changed since a function was called with its name: results must not come from a cache.
        results: list[bytes] = self._client.gather(self._client.map(function, items, pure=False))
        return results

    def reduce(
        self, function: Callable[[Item], bytes], items: Sequence[Item], merge: Callable[[list[bytes]], bytes]
    ) -> bytes:
        # Results stay on the workers until one is left.
        futures = self._client.map(function, items, pure=False)
        while len(futures) > 1:
            groups = [futures[at : at + _GROUP] for at in range(0, len(futures), _GROUP)]
            futures = [self._client.submit(merge, group, pure=False) for group in groups]
        result: bytes = futures[0].result()
        return result


class _Spark:
    def __init__(self, context: Any) -> None:
        self._context = context

    def each(self, function: Callable[[Item], bytes], items: Sequence[Item]) -> list[bytes]:
        results: list[bytes] = self._context.parallelize(list(items), len(items)).map(function).collect()
        return results

    def reduce(
        self, function: Callable[[Item], bytes], items: Sequence[Item], merge: Callable[[list[bytes]], bytes]
    ) -> bytes:
        parts = self._context.parallelize(list(items), len(items)).map(function)
        result: bytes = parts.treeReduce(lambda one, other: merge([one, other]))
        return result


class _Ray:
    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def each(self, function: Callable[[Item], bytes], items: Sequence[Item]) -> list[bytes]:
        # Ray takes functions alone, and not what functools.partial makes of them.
        task = self._ray.remote(lambda item: function(item))
        results: list[bytes] = self._ray.get([task.remote(item) for item in items])
        return results

    def reduce(
        self, function: Callable[[Item], bytes], items: Sequence[Item], merge: Callable[[list[bytes]], bytes]
    ) -> bytes:
        task = self._ray.remote(lambda item: function(item))
        join = self._ray.remote(lambda *results: merge(list(results)))
        results = [task.remote(item) for item in items]
        while len(results) > 1:
            results = [join.remote(*results[at : at + _GROUP]) for at in range(0, len(results), _GROUP)]
        result: bytes = self._ray.get(results[0])
        return result


def _in_threads(function: Callable[[Item], bytes], items: Sequence[Item]) -> list[bytes]:
    from concurrent.futures import ThreadPoolExecutor

    # The work is done by other processes.
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(function, items))


class Job:
    """Traces of a job, read in shards by an engine at the first question; this machine's cores unless one is given.

    ``each(function, items)`` has to return what ``function`` returns for each item; a task that is lost may simply be
    run again. ``options`` are those of :func:`shards`.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        each: Callable[..., Iterable[bytes]] | None = None,
        count: int | None = None,
        engine: Engine | None = None,
        **options: Any,
    ) -> None:
        self.shards = shards(paths, count or os.cpu_count() or 1, **options)
        self._engine: Engine = engine or _Each(each or _in_threads)
        self._merged: bytes | None = None
        self._complete = False

    @classmethod
    def dask(cls, paths: Any, client: Any, *, count: int | None = None, **options: Any) -> Job:
        """Read on the workers of a Dask client, in as many shards as there are threads unless ``count`` says otherwise."""
        count = count or sum(client.nthreads().values()) or 1
        return cls(paths, engine=_Dask(client), count=count, **options)

    @classmethod
    def spark(cls, paths: Any, context: Any, *, count: int | None = None, **options: Any) -> Job:
        """Read on the executors of a ``SparkContext`` (or ``SparkSession``)."""
        context = getattr(context, "sparkContext", context)
        return cls(paths, engine=_Spark(context), count=count or context.defaultParallelism, **options)

    @classmethod
    def ray(cls, paths: Any, *, count: int | None = None, **options: Any) -> Job:
        """Read on the workers of Ray, which has to be initialized."""
        import ray

        count = count or int(ray.cluster_resources().get("CPU", 1))
        return cls(paths, engine=_Ray(ray), count=count, **options)

    def result(self) -> bytes:
        """Return the partial result of all shards, with the peak of all and what held it."""
        from functools import partial as bound

        if self._merged is None:
            self._merged = self._engine.reduce(partial, self.shards, merge)
        while not self._complete:
            # Merging one result says what it asks for.
            self._merged, state = _merged([self._merged])
            if state["asks"] is None:
                self._complete = True
                break
            answers = self._engine.each(bound(_answer_to, self._merged), self.shards)
            self._merged, state = _merged([self._merged, *answers])
            self._complete = state["asks"] is None
        return self._merged

    def json(self, command: str, *options: str) -> str:
        """Return the answer of a command as the JSON that the command prints."""
        with tempfile.TemporaryDirectory(prefix="floodmark-") as folder:
            path = _write(folder, "job", self.result())
            return _run(command, path, *options, "--json").decode()

    def ask(self, command: str, *options: str) -> dict[str, Any]:
        """Return the answer of ``stats``, ``watermark``, ``leaks`` or ``lifetimes``."""
        import json

        answer: dict[str, Any] = json.loads(self.json(command, *options))
        return answer

    def stats(self) -> Stats:
        """Return counts, bytes, peak and sizes of allocations."""
        return Stats(self.ask("stats"))

    def watermark(self, *, by: str | Sequence[str] | None = None, limit: int | None = None) -> Watermark:
        """Return what held memory at the peak of the whole job."""
        return Watermark(self.ask("watermark", *_options({"by": by, "limit": limit})))

    def leaks(self, *, limit: int | None = None) -> Leaks:
        """Return the blocks that were not freed."""
        return Leaks(self.ask("leaks", *_options({"limit": limit})))
