"""The entry point of `doctor`: Ctrl-C leaves no traceback, even while modules are imported."""

import sys


def main() -> None:
    """The command, with its exit code."""
    try:
        from rlhfdoctor.cli import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
