"""Finding and running the ``floodmark`` command."""

from __future__ import annotations

import os
import sys
import sysconfig


def find_command() -> str:
    """Return the path of the command that belongs to this package.

    The environment variable ``FLOODMARK`` names another one.
    """
    named = os.environ.get("FLOODMARK")
    if named:
        return named
    package = os.path.dirname(os.path.abspath(__file__))
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", vars={"base": sys.base_prefix}),
        # Installed with --target, or with --prefix.
        os.path.join(os.path.dirname(package), "bin"),
        os.path.abspath(os.path.join(package, "..", "..", "..", "..", "bin")),
        sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user")),
    ]
    for folder in [*folders, *os.environ.get("PATH", "").split(os.pathsep)]:
        path = os.path.join(folder, "floodmark") if folder else ""
        if path and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise FileNotFoundError(
        "the floodmark command is not installed; set FLOODMARK to its path, or install a wheel that contains it"
    )
