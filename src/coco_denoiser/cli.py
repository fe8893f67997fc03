"""The command `coco-denoiser`: parses and calls; decides nothing.

A subcommand is a function that describes its arguments and a function that runs them. To add
one, write the two and name them in `COMMANDS`.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from coco_denoiser._version import __version__
from coco_denoiser.experiments import ExperimentError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 2 refused, 130 interrupted."""
    try:
        arguments = _parser().parse_args(argv)
        COMMANDS[arguments.command].run(arguments)
    except (UsageError, ExperimentError) as error:
        print(f"coco-denoiser: error: {error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"coco-denoiser: error: not enough memory: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("coco-denoiser: interrupted", file=sys.stderr)
        return 130
    return 0


class UsageError(Exception):
    """The command line cannot be understood."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line, left to `main` to print."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving the process."""
        raise UsageError(f"{message} (see {self.prog} --help)")


class Command(NamedTuple):
    """One subcommand: its line of help, its arguments, and what it does with them."""

    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def _parser() -> Parser:
    parser = Parser(prog="coco-denoiser", description="Co-coercive denoising of gradients.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.help, description=command.help)
        command.arguments(subparser)
    return parser


def _whole_number(at_least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = at_least - 1
        if number < at_least:
            raise argparse.ArgumentTypeError(
                f"must be a whole number, {at_least} or more, got {text!r}"
            )
        return number

    return parse


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("coco-denoiser-demo"),
        metavar="DIR",
        help="folder for the picture, made if missing (default: %(default)s)",
    )
    parser.add_argument(
        "--runs",
        type=_whole_number(at_least=1),
        default=100,
        metavar="N",
        help="independent runs to average (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=_whole_number(at_least=0),
        default=0,
        metavar="S",
        help="seed of the noise (default: %(default)s)",
    )


def _demo(arguments: argparse.Namespace) -> None:
    from coco_denoiser.experiments import demo

    config = demo.Config(runs=arguments.runs, seed=arguments.seed)
    result, picture = demo.demonstrate(config, arguments.out)
    print(demo.table(result))
    print(f"\nPicture: {picture}")


COMMANDS = {
    "demo": Command(
        "SGD with and without the denoiser on the paper's synthetic problem: a table, a picture.",
        _demo_arguments,
        _demo,
    ),
}
