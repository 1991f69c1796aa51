"""Copies what a shard reads of traces and logs that lie in object storage or on another machine.

A path with a scheme (``s3://``, ``gs://``, ``abfs://``, ``hdfs://``, ``https://`` ...) is read through fsspec. Of a trace
the manifest and the small tables are copied, and of the events the parts with processes of the shard; nothing else is
read. Copies go when the task ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile

from floodmark._native import TraceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

# Tables of rows that partial results never read, unless growth is asked for.
_ROW_TABLES = {"sample", "output", "stack_sample", "log", "call", "scope"}


def is_remote(path: str) -> bool:
    """Tell whether a path has a scheme that fsspec knows how to read."""
    return "://" in path


@contextlib.contextmanager
def local_copies(
    paths: Sequence[str], needs_rows: bool, event_files: Callable[[Sequence[str], str], list[list[str]]]
) -> Iterator[tuple[list[str], str | None]]:
    """Yield paths that the command can read, and the folder to run it in.

    ``event_files(paths, folder)`` returns for each path the files of events that are needed, none for a log.
    """
    if not any(map(is_remote, paths)):
        yield list(paths), None
        return
    with tempfile.TemporaryDirectory(prefix="floodmark-") as folder:
        found = [_Remote(path, folder, number) if is_remote(path) else None for number, path in enumerate(paths)]
        # Answers name the inputs by these paths, so they are the last part of what was given.
        names = [item.name if item else os.path.abspath(path) for item, path in zip(found, paths, strict=True)]
        for item in found:
            if item:
                item.copy_small(needs_rows)
        for item, files in zip(found, event_files(names, folder), strict=True):
            if item and files:
                item.copy(files)
        yield names, folder


class _Remote:
    def __init__(self, url: str, folder: str, number: int) -> None:
        try:
            import fsspec.core
        except ImportError as error:
            raise TraceError(f"{url} is read through fsspec; try: pip install fsspec") from error
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise TraceError(f"{url} cannot be read: {error}") from error
        self._url = url
        self._root = self._root.rstrip("/")
        base = self._root.rsplit("/", 1)[-1] or "input"
        self.name = base if number == 0 else os.path.join(str(number), base)
        self._local = os.path.join(folder, self.name)

    def copy_small(self, needs_rows: bool) -> None:
        """Copy a log, or all of a trace but its events."""
        try:
            manifest = self._files.cat_file(f"{self._root}/manifest.json")
        except (FileNotFoundError, NotADirectoryError):
            self._copy_log()
            return
        except OSError as error:
            raise TraceError(f"{self._url}: {error}") from error
        os.makedirs(os.path.join(self._local, "segments"))
        with open(os.path.join(self._local, "manifest.json"), "wb") as file:
            file.write(manifest)
        skipped = {"event"} if needs_rows else {"event", *_ROW_TABLES}
        known: dict[str, Any] = json.loads(manifest)
        if not all(process["sealed"] for process in known["processes"]):
            raise TraceError(f"{self._url} is not sealed; try: open it once where it was recorded, then copy it")
        self.copy([f"{part['table']}/{part['file']}" for part in known["parts"] if part["table"] not in skipped])

    def copy(self, files: Sequence[str]) -> None:
        """Copy files of a trace."""
        for name in files:
            target = os.path.join(self._local, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            self._get(f"{self._root}/{name}", target)

    def _copy_log(self) -> None:
        os.makedirs(os.path.dirname(self._local), exist_ok=True)
        self._get(self._root, self._local)

    def _get(self, remote: str, target: str) -> None:
        try:
            self._files.get_file(remote, target)
        except FileNotFoundError as error:
            raise TraceError(f"{self._url}: there is no {remote}") from error
        except OSError as error:
            raise TraceError(f"{self._url}: copying {remote} failed: {error}") from error
