"""The command `coco-denoiser`: parses and calls; decides nothing."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

from coco_denoiser._version import __version__
from coco_denoiser.paper.files import RefusedError, reason


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done, 2 refused, 130 interrupted, 141 output closed by the reader.
    """
    try:
        try:
            arguments = parser().parse_args(argv)
            arguments.run(arguments)
        finally:  # while a failure to print can still be reported
            if sys.stdout is not None:  # None if it was closed from the start
                sys.stdout.flush()
    except RefusedError as error:
        return _refused(str(error))
    except MemoryError as error:
        return _refused(f"not enough memory: {error}")
    except KeyboardInterrupt:
        print("coco-denoiser: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        if error.filename is not None:  # not about standard output
            raise
        # The interpreter flushes once more at exit, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 141
        return _refused(f"cannot write to standard output: {reason(error)}")
    return 0


def _refused(why: str) -> int:
    print(f"coco-denoiser: error: {why}", file=sys.stderr)
    return 2


class Parser(argparse.ArgumentParser):
    """An argument parser whose error is one line, which `main` prints."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving the process."""
        raise RefusedError(f"{message} (see {self.prog} --help)")


def parser() -> Parser:
    """Return the parser of the whole command line; the attribute `run` does what was asked."""
    whole = Parser(
        prog="coco-denoiser",
        description="Take the noise out of stochastic gradients, as far as co-coercivity allows.",
        epilog="`coco-denoiser COMMAND --help` describes a command. Exit codes: 0 done, 2 refused "
        "(one line says why), 130 interrupted, 141 output closed by the reader.",
    )
    whole.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = whole.add_subparsers(metavar="COMMAND", required=True)

    def command(run: Callable[[argparse.Namespace], None], about: str, example: str = "") -> Parser:
        added = commands.add_parser(
            run.__name__.strip("_"), help=about, description=about, epilog=example
        )
        added.set_defaults(run=run)
        return added

    about = "Recompute the figures of the paper and check what it says about them."
    example = "example: coco-denoiser reproduce synthetic-sgd tuned-step --out results"
    _reproduce_arguments(command(_reproduce, about, example))
    command(_list, "Describe the experiments that reproduce can run.")
    about = "Open an interactive page on this machine: SGD with and without COCO."
    example = "example: coco-denoiser explore --port 8000 --no-browser"
    add = command(_explore, about, example).add_argument
    add(
        "--port",
        type=_whole_number(at_least=0, at_most=65535),
        default=5006,
        metavar="N",
        help="port on localhost, 0 for any free one (default: %(default)s)",
    )
    silent = "print the address without opening a browser"
    add("--no-browser", action="store_true", help=silent)
    return whole


def _reproduce_arguments(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "names",
        nargs="*",
        metavar="NAME",
        help="experiments to run, see `list` (default: the figures of the paper)",
    )
    few = "fewer runs, the same code: for tests, since a quarter of the statements stay open"
    add("--quick", action="store_true", help=few)
    beyond = "also run what goes beyond the paper; see `list`"
    add("--all", dest="everything", action="store_true", help=beyond)
    add("--verbose", action="store_true", help="print every claim with its number and verdict")
    add(
        "--jobs",
        type=_whole_number(at_least=1),
        metavar="N",
        help="processes to use; results do not depend on it (default: one per core)",
    )
    add(
        "--seed",
        type=_whole_number(at_least=0),
        default=0,
        metavar="S",
        help="seed of all noise (default: %(default)s)",
    )
    add(
        "--out",
        type=Path,
        default=Path("coco-denoiser-results"),
        metavar="DIR",
        help="folder for the results, created if missing (default: %(default)s)",
    )
    add("--dask", metavar="ADDRESS", help="run on the Dask cluster with this scheduler")


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


if __name__ == "__main__":
    sys.exit(main())
