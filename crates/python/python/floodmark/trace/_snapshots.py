"""Snapshots of tracemalloc at new peaks of the resident size."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import tracemalloc

from floodmark import _native

#: Growth above the last peak that makes a new one, as a share of it.
_SHARE = 10
#: Snapshots that are kept of a process, those of the highest peaks.
_MOST = 10
_TIMEOUT_NS = 20_000_000


class PeakSnapshots:
    """Takes a snapshot whenever the resident size has come ``step`` bytes above its last peak, 10 % if that is 0.

    A thread waits for that without the interpreter's lock, so that a peak is seen a few milliseconds later, and one that
    is shorter may be missed.
    """

    def __init__(self, step: int) -> None:
        self._step = step
        self._folder = ""
        self._threshold = 0
        self._number = 0
        self._has_started = False
        self._has_failed = False
        self._process = 0
        self._is_ready = threading.Event()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="floodmark-peaks", daemon=True)
        #: The files, the lowest peak first.
        self.paths: list[str] = []

    def start(self, trace: str) -> None:
        """Begin to watch the process; snapshots go into a folder of the trace."""
        self._folder = os.path.join(trace, "tracemalloc")
        if not tracemalloc.is_tracing():
            tracemalloc.start()
            self._has_started = True
        self._process = os.getpid()
        self._set_peak(_native.wait_for_rss(0, 0))
        self._thread.start()
        # What a thread does before it is ignored would be traced.
        self._is_ready.wait()

    def stop(self) -> None:
        """Take a last snapshot if the process is at a new peak, and end; a forked child leaves those of its parent alone."""
        if self._process != os.getpid():
            self.paths = []
        elif self._thread.ident is not None:
            self._is_stopped.set()
            self._thread.join()
            if not self._has_failed:
                self._take_at_peak(0)
        if self._has_started:
            tracemalloc.stop()

    def _set_peak(self, resident: int) -> None:
        self._threshold = resident + (self._step or resident // _SHARE)

    def _watch(self) -> None:
        _native.ignore_thread()
        self._is_ready.set()
        while not (self._is_stopped.is_set() or self._has_failed):
            self._take_at_peak(_TIMEOUT_NS)

    def _take_at_peak(self, timeout_ns: int) -> None:
        resident = _native.wait_for_rss(self._threshold, timeout_ns)
        if resident < self._threshold or not tracemalloc.is_tracing():
            return
        try:
            self._take(resident)
        except (OSError, MemoryError, RuntimeError) as error:
            # The program goes on without: what it needs memory or disk for comes first.
            self._has_failed = True
            print(f"floodmark: no more snapshots of tracemalloc: {type(error).__name__}: {error}", file=sys.stderr)

    def _take(self, resident: int) -> None:
        self._number += 1
        path = os.path.join(self._folder, f"{os.getpid()}-{self._number}.snapshot")
        os.makedirs(self._folder, exist_ok=True)
        try:
            tracemalloc.take_snapshot().dump(path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        _native.mark(f"tracemalloc snapshot {os.path.basename(path)}: RSS of {resident} bytes")
        self.paths.append(path)
        if len(self.paths) > _MOST:
            os.unlink(self.paths.pop(0))
        # What the snapshot itself took is not the program's.
        self._set_peak(max(resident, _native.wait_for_rss(0, 0)))
