"""The command `coco-denoiser`: parses and calls; decides nothing.

A subcommand is a function and a table of its arguments, as `add_argument` takes them. To add one,
write the two and name them in `COMMANDS`.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from coco_denoiser._version import __version__
from coco_denoiser.paper.files import RefusedError, reason


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done, 2 refused, 130 interrupted, 141 output closed by the reader.
    """
    try:
        with _standard_output():
            arguments = parser().parse_args(argv)
            COMMANDS[arguments.command].run(arguments)
    except RefusedError as error:
        print(f"coco-denoiser: error: {error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"coco-denoiser: error: not enough memory: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 141
    except KeyboardInterrupt:
        print("coco-denoiser: interrupted", file=sys.stderr)
        return 130
    return 0


@contextmanager
def _standard_output() -> Iterator[None]:
    """Flush what was printed while a failure can still be reported."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # None if it was closed from the start
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:  # about some other file
            raise
        # The interpreter flushes once more at exit, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise RefusedError(f"cannot write to standard output: {reason(error)}") from error


class Parser(argparse.ArgumentParser):
    """An argument parser whose error is one line, which `main` prints."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving the process."""
        raise RefusedError(f"{message} (see {self.prog} --help)")


class Command(NamedTuple):
    """One subcommand: its line of help, what it does with its arguments, these, an example."""

    help: str
    run: Callable[[argparse.Namespace], None]
    arguments: Mapping[str, Mapping[str, Any]]
    example: str = ""


def parser() -> Parser:
    """Return the parser of the whole command line."""
    whole = Parser(
        prog="coco-denoiser",
        description="Take the noise out of stochastic gradients, as far as co-coercivity allows.",
        epilog="`coco-denoiser COMMAND --help` describes a command. Exit codes: 0 done, 2 refused "
        "(one line says why), 130 interrupted, 141 output closed by the reader.",
    )
    whole.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(
            name,
            help=command.help,
            description=command.help,
            epilog=command.example and f"example: coco-denoiser {name} {command.example}",
        )
        for names, options in command.arguments.items():
            subparser.add_argument(*names.split(), **options)
    return whole


def _whole_number(at_least: int, at_most: int | None = None) -> Callable[[str], int]:
    wanted = f"{at_least} or more" if at_most is None else f"{at_least} to {at_most}"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = at_least - 1
        if number < at_least or (at_most is not None and number > at_most):
            raise argparse.ArgumentTypeError(f"must be a whole number, {wanted}, got {text!r}")
        return number

    return parse


_REPRODUCE: dict[str, dict[str, Any]] = {
    "names": {
        "nargs": "*",
        "metavar": "NAME",
        "help": "experiments to run, see `list` (default: the figures of the paper)",
    },
    "--quick": {
        "action": "store_true",
        "help": "fewer runs, the same code: for tests, since a quarter of the statements stay open",
    },
    "--all": {
        "dest": "everything",
        "action": "store_true",
        "help": "also run what goes beyond the paper; see `list`",
    },
    "--verbose": {
        "action": "store_true",
        "help": "print every claim with its number and verdict",
    },
    "--jobs": {
        "type": _whole_number(at_least=1),
        "metavar": "N",
        "help": "processes to use; results do not depend on it (default: one per core)",
    },
    "--seed": {
        "type": _whole_number(at_least=0),
        "default": 0,
        "metavar": "S",
        "help": "seed of all noise (default: %(default)s)",
    },
    "--out": {
        "type": Path,
        "default": Path("coco-denoiser-results"),
        "metavar": "DIR",
        "help": "folder for the results, created if missing (default: %(default)s)",
    },
    "--dask": {"metavar": "ADDRESS", "help": "run on the Dask cluster with this scheduler"},
}


@contextmanager
def _needs(extra: str) -> Iterator[None]:
    """Name the extra, where importing what is built on it fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise RefusedError(
            f"{error.name} is missing: pip install 'coco-denoiser[{extra}]'"
        ) from error


def _reproduce(arguments: argparse.Namespace) -> None:
    with _needs("paper"):
        from coco_denoiser.paper.experiments.reproduce import reproduce

    reproduce(arguments)


def _list(_: argparse.Namespace) -> None:
    with _needs("paper"):
        from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
        from coco_denoiser.paper.experiments.reproduce import describe

    for experiment in EXPERIMENTS.values():
        print(describe(experiment))


_EXPLORE: dict[str, dict[str, Any]] = {
    "--port": {
        "type": _whole_number(at_least=0, at_most=65535),
        "default": 5006,
        "metavar": "N",
        "help": "port on localhost, 0 for any free one (default: %(default)s)",
    },
    "--no-browser": {
        "action": "store_true",
        "help": "print the address without opening a browser",
    },
}


def _explore(arguments: argparse.Namespace) -> None:
    with _needs("explore"):
        from coco_denoiser.paper.explore.server import Server, serve

    try:
        server = Server(arguments.port)
    except (OSError, OverflowError) as error:
        raise RefusedError(
            f"cannot listen on port {arguments.port} ({error}): choose another with --port, or "
            "any free one with --port 0"
        ) from error
    serve(server, browser=not arguments.no_browser, say=partial(print, flush=True))


COMMANDS = {
    "reproduce": Command(
        "Recompute the figures of the paper and check what it says about them.",
        _reproduce,
        _REPRODUCE,
        "synthetic-sgd tuned-step --out results",
    ),
    "list": Command("Describe the experiments that reproduce can run.", _list, {}),
    "explore": Command(
        "Open an interactive page on this machine: SGD with and without COCO.",
        _explore,
        _EXPLORE,
        "--port 8000 --no-browser",
    ),
}


if __name__ == "__main__":
    sys.exit(main())
