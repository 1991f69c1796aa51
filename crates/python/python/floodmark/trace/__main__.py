"""``python -m floodmark.trace [options] script.py args…`` traces a program."""

from __future__ import annotations

import argparse
import os
import sys

from floodmark import trace
from floodmark._sizes import parse_bytes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m floodmark.trace",
        description="Trace every call and return of a Python program, with the resident size of the process.",
    )
    parser.add_argument("-o", "--output", metavar="PATH", help="Trace to write [default: named after time and process]")
    parser.add_argument("--force", action="store_true", help="Replace the trace if it exists")
    parser.add_argument(
        "--mode",
        choices=["every", "changes", "pairs", "lines", "faults"],
        help="Events to record: every one, those at which the RSS changed, these with the event before each, the "
        "stacks of lines in which it changed, or the stacks of code that touches new memory, without tracing calls",
    )
    parser.add_argument("--lines", dest="mode", action="store_const", const="lines", help="The same as --mode lines")
    parser.add_argument(
        "--d-rss-trigger",
        type=_trigger,
        default=-1,
        metavar="BYTES",
        help="Change of the RSS that makes an event recorded; 0 for every event [default: one page]",
    )
    parser.add_argument("--include", action="append", default=[], metavar="PATTERN", help="Trace these modules or files only")
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="Do not trace these modules or files")
    parser.add_argument(
        "--tracemalloc", action="store_true", help="Take a snapshot of tracemalloc at every new peak of the RSS"
    )
    parser.add_argument(
        "--tracemalloc-step",
        type=parse_bytes,
        metavar="BYTES",
        help="The same, for peaks this far above the last one [default: 10 %%]",
    )
    parser.add_argument("--message", help="Record this mark first")
    parser.add_argument("-q", "--quiet", action="store_true", help="Do not print how exact the RSS is")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("-m", dest="is_module", action="store_true", help="Run a module, as `python -m` does")
    kind.add_argument("-c", dest="is_code", action="store_true", help="Run code, as `python -c` does")
    parser.add_argument("program", metavar="script.py", help="Program to trace")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="args", help="Its arguments")
    return parser


def _options() -> argparse.Namespace:
    """Parse the command line; a ``--`` of the program stays, as argparse would take the first one away."""
    # No word of a command line can contain the character 0.
    dashes = "\0--"
    parser = _parser()
    options = parser.parse_args([dashes if word == "--" else word for word in sys.argv[1:]])
    words = [options.program, *options.arguments]
    if words[0] == dashes:
        del words[0]
    if not words:
        parser.error("the following arguments are required: script.py")
    options.program, *options.arguments = ["--" if word == dashes else word for word in words]
    return options


def _trigger(text: str) -> int:
    return -1 if text.startswith("-") else parse_bytes(text)


def _set_first_path(folder: str) -> None:
    """Have modules imported from a folder first, unless the interpreter was started to prevent that."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def main() -> None:
    options = _options()
    sys.argv[:] = ["-c" if options.is_code else options.program, *options.arguments]
    profile = trace.Profile(
        options.d_rss_trigger,
        options.message,
        options.output,
        mode=options.mode,
        include=options.include,
        exclude=options.exclude,
        force=options.force,
        quiet=options.quiet,
        follow=True,
        tracemalloc=options.tracemalloc_step or options.tracemalloc,
    )
    if options.is_module:
        import runpy

        _set_first_path(os.getcwd())
        profile.start()
        # Threads may outlive the program's last line: the trace ends with the process.
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
        return
    module = type(sys)("__main__")
    module.__dict__["__builtins__"] = __builtins__
    if options.is_code:
        code = compile(options.program, "<string>", "exec", dont_inherit=True)
        _set_first_path("")
    else:
        path = options.program
        try:
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        except OSError as error:
            sys.exit(f"error: {path}: {error.strerror}")
        _set_first_path(os.path.dirname(os.path.abspath(path)))
        module.__dict__["__file__"] = path
    sys.modules["__main__"] = module
    profile.start()
    exec(code, module.__dict__)


if __name__ == "__main__":
    main()
