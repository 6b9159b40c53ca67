"""Turns each of the errors that mean "out of memory" into one set of facts.

TensorFlow says it in many ways, some as an `InternalError` or an `UnknownError`, and uses
`ResourceExhaustedError` for other things too: what an error is about stands in its text. A saved
text is read as well as a live error. Nothing here raises because of what a text says.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from errno import ENOMEM
from traceback import format_exception_only

from oommagic.own_builtins import keep_builtins
from oommagic.report import Failure
from oommagic.tf import arena, context
from oommagic.tf.culprits import Frame, calls_in, frames_of, line_of
from oommagic.tf.dumps import device_of, limit_of
from oommagic.tf.layers import role_of
from oommagic.tf.oom_signs import Place, Sign, find
from oommagic.tf.room_for_arrays import as_told
from oommagic.units import GIB, KIB, MIB, TIB

keep_builtins(globals())

_SCALES = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB, "P": KIB * TIB, "E": MIB * TIB}
_NUMBER_AND_UNIT = re.compile(r"(?P<number>[\d.]+) ?(?P<unit>[KMGTPE]?)")

_OPS = (
    re.compile(r"\[\[(?:\{\{)?node (?P<op>[^\s}\]]+)"),
    re.compile(r"Detected at node '?(?P<op>[^\s']+?)'? defined at"),
    re.compile(r"Node: '(?P<op>[^'\n]+)'"),
    re.compile(r"in order to run (?P<op>\w+):"),
    re.compile(r"\[Op:(?P<op>(?!__inference_)\w+)\]"),
    re.compile(r"__wrapped__(?P<op>[A-Z]\w*?)_(?:[a-z]\w*_)?device_/"),
)
# XLA lists what its one allocation is for, the largest first; arguments are not part of it.
_LARGEST_BUFFER = re.compile(r'op_name="(?P<op>(?!XLA_Args)[^"\n]+)"')

_DEVICE = re.compile(r"\b(?P<name>[A-Z]+:\d+)(?=\W|$)")
_WRAPPED_FOR = re.compile(r"\{\{function_node [^{}\s]+?_device_(?P<device>/job:[^{}\s]+)\}\}")
_BEFORE_THE_MESSAGE = re.compile(
    r"^.*\{\{function_node [^{}]*\}\} ?|^\s*(?:\(\d+\) )?(?:[A-Z_]+: )?(?=\S)"
)
_AFTER_THE_MESSAGE = re.compile(r"\s*(?:\[\[.*|\[Op:.*)?$")

_NUMPY_NAMES = {"float": "float32", "double": "float64", "half": "float16"}
_NUMBER_TYPE = re.compile(r"(?:b?float|q?u?int|complex|datetime|timedelta)(?P<bits>\d{1,3})")
_TEXT_TYPE = re.compile(r"[<>|=]?(?P<kind>[US])(?P<length>\d{1,9})")

_OF_A_GRAPH = re.compile(r"Graph execution error|__inference_|\{\{node ")
_KERAS = re.compile(r"[/\\]keras[/\\]src[/\\]")

_DIMENSION = re.compile(r"[0-9]{1,18}")

_NAME_BEFORE = re.compile(r"^[\w.<>]+(?:: |\s*$)")
_RAISED = re.compile(r"^(?:\w+\.)*(?P<type>_?[A-Z]\w*(?:Error|Exception))(?:: |:?$)", re.MULTILINE)
_CHAINED = re.compile(
    r"^(?:During handling of the above exception|The above exception was the direct cause)",
    re.MULTILINE,
)
_MOST_ERRORS = 100


def failure_of(error: BaseException) -> Failure | None:
    """Find the out-of-memory failure in an error, or in what caused it; None if there is none."""
    for each in _errors_in(error):
        types = frozenset(kind.__name__ for kind in type(each).__mro__)
        failure = _failure(types, _message_of(each), frames_of(each) or frames_of(error))
        if failure is not None:
            return _located(replace(failure, error_type=type(each).__name__))
    return None


def failure_from_message(error_type: str, message: str, calls: Iterable[Frame]) -> Failure | None:
    """Find the out-of-memory failure in an error of this process that is gone."""
    failure = _failure(frozenset({error_type}), message, calls)
    return None if failure is None else _located(replace(failure, error_type=error_type))


def failed_in_own_line(error: BaseException) -> bool:
    """Say whether an op failed that the user's own code ran at once, in no graph and not by Keras.

    What that code had in hand is still there: the error's traceback holds it.
    """
    if any(_KERAS.search(frame.filename) for frame in frames_of(error)):
        return False
    return _OF_A_GRAPH.search(_message_of(error)) is None


def failure_from_text(error_type: str, text: str) -> Failure | None:
    """Find the out-of-memory failure in a saved error.

    `text` is its message, or a whole traceback, in which the last error counts first. Without a
    type, those named in the text are tried.
    """
    own_type = error_type.rpartition(".")[2]
    end = len(text)
    for raised in reversed(list(_RAISED.finditer(text))):
        if own_type in {"", raised["type"]}:
            calls = calls_in(text[: raised.start()])
            message = _CHAINED.split(text[raised.end() : end], maxsplit=1)[0]
            failure = _failure(frozenset({raised["type"]}), message, calls)
            if failure is not None:
                return replace(failure, error_type=raised["type"])
        end = raised.start()
    failure = _failure(frozenset({own_type}), text, ())
    return None if failure is None else replace(failure, error_type=own_type)


def _errors_in(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, those in its group, and those that it came of, each once."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_ERRORS:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(each.exceptions)
        waiting.extend(more for more in (each.__cause__, each.__context__) if more is not None)


def _message_of(error: BaseException) -> str:
    """Give an error's message; the user's own error may not be able to say it."""
    if isinstance(error, OSError) and error.errno == ENOMEM:
        return f"[Errno {ENOMEM}] Cannot allocate memory"
    return _NAME_BEFORE.sub("", "".join(format_exception_only(error)), count=1)


def _failure(types: frozenset[str], text: str, calls: Iterable[Frame]) -> Failure | None:
    """Read one error's text."""
    text = as_told(text)
    found = find(types, text)
    if found is None:
        return None
    sign, match = found
    said = match.groupdict()
    place, device = _where(sign, said, text)
    dtype = _NUMPY_NAMES.get(said.get("dtype") or "", said.get("dtype") or "")
    shape = _shape(said.get("shape"))
    op = _op(text, match.end())
    line = line_of(calls, text)
    return Failure(
        kind=sign.kind,
        place=place,
        text=_line_around(text, match) or "MemoryError",
        device=device,
        asked_bytes=_asked_bytes(said, shape, dtype),
        shape=shape,
        dtype=dtype,
        op=op,
        layer=role_of(op).layer if "/" in op else "",
        line_number=line.line_number if line else None,
        line_source=line.source if line else "",
        filename=line.filename if line else "",
        allocator=said.get("allocator") or "",
    )


def _where(sign: Sign, said: dict[str, str | None], text: str) -> tuple[Place, str]:
    """Tell host from device, and name the device: the allocator knows best."""
    allocator = said.get("allocator") or ""
    device = device_of(allocator)
    if device:
        return "device", device
    if _is_hosts(allocator):
        return "host", ""
    named = said.get("device") or _device_that_ran(text)
    match = _DEVICE.search(named)
    ordinal = said.get("ordinal")
    device = match["name"] if match else f"GPU:{int(ordinal)}" if ordinal else ""
    if sign.place == "host" or device.startswith("CPU"):
        return "host", ""
    return "device", device


def _is_hosts(allocator: str) -> bool:
    """Say whether an allocator hands out host memory: `cpu`, `mklcpu`, `gpu_host_bfc`."""
    return allocator.startswith(("cpu", "mklcpu")) or "host" in allocator


def _device_that_ran(text: str) -> str:
    match = _WRAPPED_FOR.search(text)
    return match["device"] if match else ""


def _located(failure: Failure) -> Failure:
    """Say where it was, as far as this process's devices tell, and the limit there."""
    if not failure.device and not failure.allocator and failure.kind != "python":
        failure = _in_this_process(failure)
    limit = limit_of(failure.device) if failure.place == "device" else None
    return replace(failure, limit_bytes=limit)


def _in_this_process(failure: Failure) -> Failure:
    """Name the device where there is only one that it can be.

    On a training device, what TensorFlow takes of the host's memory is the device's.
    """
    gpus = _gpus()
    if gpus and failure.place == "device":
        return replace(failure, device=gpus[0]) if len(gpus) == 1 else failure
    training = arena.current()
    if training is not None and training.is_running:
        return replace(failure, place="device", device="CPU:0")
    return replace(failure, place="host") if context.has_devices() else failure


def _gpus() -> list[str]:
    now = context.current_context()
    names = [device.name for device in context.own_devices(now)] if now is not None else []
    return [context.short_name(name) for name in names if ":CPU:" not in name]


def _asked_bytes(
    said: dict[str, str | None], shape: tuple[int, ...] | None, dtype: str
) -> int | None:
    """Work out the bytes asked for: said outright, or a shape of a type, or said roughly."""
    exactly, roughly = said.get("bytes"), said.get("size")
    if exactly:
        return int(exactly)
    item_bytes = _item_bytes(dtype)
    if shape is not None and item_bytes is not None:
        return math.prod(shape) * item_bytes
    match = _NUMBER_AND_UNIT.match(roughly or "")
    if match is None:
        return None
    scale = _SCALES[match["unit"]]
    number = match["number"]
    return int(number) * scale if number.isdecimal() else round(float(number) * scale)


def _item_bytes(dtype: str) -> int | None:
    """Give the bytes of one element, in NumPy's and in TensorFlow's names of types."""
    if dtype == "bool":
        return 1
    match = _NUMBER_TYPE.match(dtype)
    if match is not None:
        return max(1, int(match["bits"]) // 8)
    match = _TEXT_TYPE.fullmatch(dtype)
    if match is not None:
        return int(match["length"]) * (4 if match["kind"] == "U" else 1)
    return None


def _shape(said: str | None) -> tuple[int, ...] | None:
    """Read a shape; None where it is not said, or not wholly known."""
    if said is None:
        return None
    parts = [part.strip() for part in said.split(",") if part.strip()]
    if not all(map(_DIMENSION.fullmatch, parts)):
        return None
    return tuple(map(int, parts))


def _op(text: str, start: int) -> str:
    """Name the op that asked, as its graph names it: the first that is named after the sign."""
    buffer = _LARGEST_BUFFER.search(text, start)
    if buffer is not None:
        return buffer["op"]
    for pattern in _OPS:
        match = pattern.search(text, start) or pattern.search(text)
        if match is not None:
            return match["op"]
    return ""


def _line_around(text: str, match: re.Match[str]) -> str:
    """Give the line of the message that tells of memory, without what points into the graph."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    line = text[start : end if end >= 0 else len(text)]
    line = _AFTER_THE_MESSAGE.sub("", _BEFORE_THE_MESSAGE.sub("", line, count=1), count=1)
    return line.strip().removesuffix(":")
