"""Magics for IPython and Jupyter: ``%load_ext floodmark``, then ``%floodmark`` and ``%%floodmark``.

``%floodmark statement`` and a cell that begins with ``%%floodmark`` run the code as usual and then show its peak, what
held memory at the peak, and live bytes over time. Memory of buffers and of NumPy's arrays is recorded, with stacks.

    -o PATH        keep the trace; otherwise it is deleted once it was asked
    --force        replace a trace that exists
    --no-stacks    record no stacks, which is faster
    --no-numpy     leave NumPy's memory alone
    --by WHAT      group blocks by site, stack, scope, thread, size ... [default: site]
    --limit N      rows to show [default: 10]
"""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import time

from IPython.core.magic import Magics, line_cell_magic, magics_class

from floodmark import reading
from floodmark.answers import Watermark
from floodmark.recording import Recording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["CellMemory", "FloodmarkMagics", "load_ipython_extension"]


class CellMemory(Watermark):
    """What held memory at the peak of a cell; a notebook shows it as a table with a timeline, a terminal as text."""

    def __init__(self, trace: reading.Trace, by: str, limit: int, window: str | None) -> None:
        filters: reading.Filters = {} if window is None else {"from_": window}
        options = [f"--by={by}", f"--limit={limit}"] + ([] if window is None else [f"--from={window}"])
        # The trace may be deleted before this is shown.
        timeline = trace.timeline(**filters)
        # Without the path in front, which is that of a temporary folder.
        self._text = trace.text("watermark", *options).removeprefix(f"{trace.path}\n")
        super().__init__(trace.ask("watermark", *options), lambda: timeline)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self._text.rstrip())


@magics_class
class FloodmarkMagics(Magics):
    """The magics of Floodmark."""

    @line_cell_magic
    def floodmark(self, line: str = "", cell: str | None = None) -> CellMemory | str | None:
        names = ("force", "no-stacks", "no-numpy", "by=", "limit=", "output=")
        options, statement = self.parse_options(line, "o:", *names, posix=True, preserve_non_opts=True)
        code = cell if cell is not None else statement
        if cell is not None and statement.strip():
            code = f"{statement}\n{cell}"
        if not code.strip():
            print(__doc__)
            return None
        limit = int(options.get("limit", 10))
        with contextlib.ExitStack() as stack:
            path = options.get("o") or options.get("output")
            if path is None:
                import tempfile

                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="floodmark-"))
                path = os.path.join(folder, "cell.flood")
            recording = Recording(path, stacks="no-stacks" not in options, force="force" in options, join=False)
            outer_path = recording.path
            error: BaseException | None = None
            value = None
            with contextlib.ExitStack() as recorded:
                if "no-numpy" not in options:
                    try:
                        import floodmark.numpy

                        recorded.enter_context(floodmark.numpy.installed())
                    except ImportError:
                        pass  # without NumPy there is no memory of its arrays
                    except RuntimeError as reason:
                        print(f"floodmark: arrays of NumPy are not recorded: {reason}", file=sys.stderr)
                begin_ns = time.time_ns()
                recorded.enter_context(recording)
                try:
                    value = self._execute(code)
                except BaseException as raised:
                    error = raised
            # A recording that was going on before has what the cell did since it began.
            window = None if recording.path == outer_path else _instant(begin_ns)
            memory: CellMemory | str
            try:
                memory = CellMemory(reading.Trace(recording.path), options.get("by", "site"), limit, window)
            except (OSError, ValueError, reading.TraceError) as failure:
                # What the cell did or raised matters more than what is said about its memory.
                memory = f"floodmark: {failure}"
        if error is not None:
            from IPython import display

            show: Any = display.display
            show(memory)
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            raise error.with_traceback(trace)
        # Displaying it takes memory too, which is not the code's.
        sys.displayhook(value)
        return memory

    def _execute(self, code: str) -> object:
        """Run code in the user's namespace and return its last expression, which a cell displays."""
        shell: Any = self.shell
        source = shell.transform_cell(code)
        name = shell.compile.cache(source, shell.execution_count, raw_code=code)
        nodes = ast.parse(source, name).body
        last = None
        if nodes and isinstance(nodes[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = nodes[-1]
            nodes.pop()
        exec(shell.compile(ast.Module(nodes, []), name, "exec"), shell.user_global_ns, shell.user_ns)
        if last is None:
            return None
        return eval(shell.compile(ast.Expression(last.value), name, "eval"), shell.user_global_ns, shell.user_ns)


FloodmarkMagics.floodmark.__doc__ = __doc__


def _instant(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics; what ``%load_ext floodmark`` calls."""
    ipython.register_magics(FloodmarkMagics)
