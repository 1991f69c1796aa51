"""Questions to a trace, or to anything else that the command reads."""

from __future__ import annotations

import os

from floodmark._command import find_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Trace", "TraceError", "open"]


class TraceError(Exception):
    """What the command says about an input that it cannot read, or an option that it does not know."""


class Trace:
    """A trace, log or export of another tool; each method asks the ``floodmark`` command."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        if not os.path.exists(self.path):
            raise FileNotFoundError(f"{self.path} does not exist")

    def __repr__(self) -> str:
        return f"floodmark.open({self.path!r})"

    def ask(self, command: str, *options: str) -> dict[str, Any]:
        """Return the answer of a command that has ``--json``, such as ``ask("watermark", "--by", "scope")``."""
        import json

        answer: dict[str, Any] = json.loads(self._run(command, self.path, *options, "--json"))
        return answer

    def text(self, command: str, *options: str) -> str:
        """Return the answer of a command as text."""
        return self._run(command, self.path, *options)

    def stats(self) -> dict[str, Any]:
        """Return counts, bytes, peak and sizes of allocations."""
        return self.ask("stats")

    def watermark(self, *options: str) -> dict[str, Any]:
        """Return what held memory at the peak."""
        return self.ask("watermark", *options)

    def leaks(self, *options: str) -> dict[str, Any]:
        """Return blocks that were never freed."""
        return self.ask("leaks", *options)

    def report(self, output: str | os.PathLike[str], *options: str) -> str:
        """Write a report as one HTML file; return its path."""
        self._run("report", self.path, "-o", os.fspath(output), *options)
        return os.fspath(output)

    def flame(self, output: str | os.PathLike[str], *options: str) -> str:
        """Write a flame graph of what holds memory; return its path."""
        self._run("flame", self.path, "-o", os.fspath(output), *options)
        return os.fspath(output)

    @staticmethod
    def _run(*arguments: str) -> str:
        import subprocess

        result = subprocess.run([find_command(), *arguments], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise TraceError(result.stderr.strip() or f"floodmark {arguments[0]} exited with {result.returncode}")
        return result.stdout


def open(path: str | os.PathLike[str]) -> Trace:
    """Open a trace, or a log or export of another tool that the command recognizes."""
    return Trace(path)
