"""``python -m floodmark`` is the ``floodmark`` command."""

import os
import sys

from floodmark._command import find_command


def main() -> None:
    try:
        command = find_command()
    except FileNotFoundError as error:
        sys.exit(f"error: {error}")
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
