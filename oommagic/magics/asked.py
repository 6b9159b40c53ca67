"""What was asked for behind a magic's name; what can't be understood is refused in words."""

import re
from typing import TYPE_CHECKING, Any

from IPython.core import magic_arguments
from IPython.core.error import UsageError as IPythonUsageError

from oommagic.errors import UsageError
from oommagic.ipython_cell import options_in

if TYPE_CHECKING:
    from oommagic.measure.recorder import Request

# Python itself refuses to read a number of thousands of digits.
_NUMBER = re.compile(r"\d{1,9}")


def profile(magic: Any, line: str) -> Any:
    """Read what stands behind `%%oomprofile`."""
    try:
        return magic_arguments.parse_argstring(magic, options_in(line))
    except (IPythonUsageError, ValueError) as error:  # ValueError: a quotation is not closed
        raise UsageError(f"{str(error).rstrip('.')}; %%oomprofile? lists the options.") from None


def request(options: Any) -> "Request":
    """Say what a recording is to do."""
    from oommagic.measure.recorder import Request

    if options.tape_steps < 1:
        raise UsageError("--tape-steps takes a number from 1 on; --no-tape records none.")
    return Request(
        functions=tuple(options.function),
        engine=options.engine,
        include_children=options.include_children,
        tape_steps=0 if options.no_tape else options.tape_steps,
        compile_s=options.compile_seconds,
    )


def device(magic: Any, line: str) -> Any:
    """Read what stands behind `%oomdevice`."""
    try:
        return magic_arguments.parse_argstring(magic, line)
    except (IPythonUsageError, ValueError) as error:
        raise UsageError(
            f"{str(error).rstrip('.')}. Ask for a size, as in 512MB, or for a card, "
            "as in --like T4; %oomdevice alone lists the cards."
        ) from None


def batch(magic: Any, line: str) -> Any:
    """Read what stands behind `%oombatch`."""
    try:
        return magic_arguments.parse_argstring(magic, line)
    except (IPythonUsageError, ValueError) as error:
        # argparse calls everything required that has no dashes, the batch too.
        words = "no model was named" if "are required" in str(error) else str(error).rstrip(".")
        raise UsageError(
            f"{words}. Name a model, as in %oombatch model; %oombatch? lists the options."
        ) from None


def number(line: str) -> int:
    """Read the number of a suggestion."""
    if not _NUMBER.fullmatch(line.strip()):
        raise UsageError("Say which suggestion, by its number, as in %oomfix 2.")
    return int(line)


def numbers(line: str) -> list[int]:
    """Read the numbers of suggestions, with spaces or commas between them."""
    words = line.replace(",", " ").split()
    if not words or not all(map(_NUMBER.fullmatch, words)):
        raise UsageError("Say which suggestions, by their numbers, as in %oomtry 2 or %oomtry 1 3.")
    return [int(word) for word in words]
