"""Values to JSON and back, strictly, and onto the disk whole or not at all.

The dataclasses' own annotations are the schema: a document is read only if it says exactly
what they say. Reading builds values and runs nothing.
"""

import errno
import json
import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TypeVar, cast, get_args, get_origin, get_type_hints

from oommagic.errors import ReportFileError

_Value = TypeVar("_Value")

_LARGEST_INT = 2**63
"""Whole numbers stay below this: no count is larger, and no renderer need fear more."""

_JSON_NAMES: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    NoneType: "null",
}

_REASONS = {
    errno.EISDIR: "it is a folder",
    errno.ENOTDIR: "a part of the path is not a folder",
    errno.EACCES: "access to it is not allowed",
    errno.EPERM: "access to it is not allowed",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EFBIG: "the file would be larger than this process may write",
    errno.ENAMETOOLONG: "its name is too long",
}


class _MismatchError(Exception):
    """The document does not say what the annotations say; the text says where."""


def to_text(value: object, format_number: int) -> str:
    """Write a dataclass as one JSON object that begins with its format number."""
    return json.dumps({"format": format_number, **_encode_fields(value)})


def from_text(text: str, kind: type[_Value], format_number: int) -> _Value:
    """Read a dataclass from what `to_text` wrote; anything else is a `ReportFileError`."""
    try:
        document = _parse(text)
        _check_format(document.pop("format", None), format_number)
        return cast("_Value", _decode(document, kind, ""))
    except _MismatchError as mismatch:
        message = f"This is not a report that oommagic can read: {mismatch}."
        raise ReportFileError(message) from None


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a whole text file, or say in one sentence why not."""
    try:
        return _as_path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        _refuse("read", path, "there is no such file")
    except OSError as error:
        _refuse("read", path, _reason(error))
    except ValueError:
        _refuse("read", path, "it is not a text file")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Put a text at a path, whole or not at all: a file that was there stays until then."""
    try:
        # Through links, so that a link stays a link and its target is what is replaced.
        _replace(_as_path(path).resolve(), text)
    except FileNotFoundError:
        _refuse("written", path, "the folder to put it in does not exist")
    except OSError as error:
        _refuse("written", path, _reason(error))
    except (ValueError, RuntimeError):
        _refuse("written", path, "that is not a path that a file can have")


def _as_path(path: str | os.PathLike[str]) -> Path:
    # Not Path.expanduser, which raises for an unknown "~name".
    return Path(os.path.expanduser(path))  # noqa: PTH111


def _replace(target: Path, text: str) -> None:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "")
    if target.exists() and not target.is_file():
        # Replacing it would take it away from whoever uses it.
        raise OSError(errno.EEXIST, "it is a device or a pipe")
    draft = target.parent / f".oommagic-{secrets.token_hex(8)}.tmp"
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _refuse(verb: str, path: str | os.PathLike[str], reason: str) -> NoReturn:
    message = f"The report could not be {verb} ({os.fspath(path)}): {reason}."
    raise ReportFileError(message) from None


def _reason(error: OSError) -> str:
    return _REASONS.get(error.errno or 0) or error.strerror or type(error).__name__


def _encode_fields(value: Any) -> dict[str, object]:
    return {field.name: _encode(getattr(value, field.name)) for field in fields(value)}


def _encode(value: object) -> object:
    if is_dataclass(value):
        return _encode_fields(value)
    if isinstance(value, Mapping):
        return {key: _encode(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return [_encode(entry) for entry in value]
    if isinstance(value, int | float) and not _is_sane(value):
        message = "The report cannot be written: one of its figures is not a finite number."
        raise ReportFileError(message)
    return value


def _is_sane(number: float) -> bool:
    return math.isfinite(number) if isinstance(number, float) else abs(number) < _LARGEST_INT


def _parse(text: str) -> dict[str, object]:
    try:
        document = json.loads(
            text, object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise _MismatchError("it is nested too deeply") from None
    except ValueError as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise _MismatchError(f"it is not whole and valid JSON{where}") from None
    return cast("dict[str, object]", _expect(document, dict, ""))


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise _MismatchError("an object in it has the same name twice")
    return entries


def _refuse_constant(name: str) -> NoReturn:
    raise _MismatchError(f"it holds {name}, which is not a number")


def _check_format(found: object, known: int) -> None:
    if type(found) is not int or found < 1:
        raise _MismatchError("it has no format number")
    if found > known:
        message = (
            f"This report was written by a newer oommagic (format {found}, this one reads "
            f"{known}); update oommagic to read it."
        )
        raise ReportFileError(message)


def _decode(value: object, kind: Any, where: str) -> object:
    origin = get_origin(kind)
    if origin is UnionType:
        inner = next(option for option in get_args(kind) if option is not NoneType)
        return None if value is None else _decode(value, inner, where)
    if origin is Literal:
        return _decode_choice(value, get_args(kind), where)
    if origin is tuple:
        entries = cast("list[object]", _expect(value, list, where))
        inner = get_args(kind)[0]
        return tuple(_decode(entry, inner, f"{where}[{i}]") for i, entry in enumerate(entries))
    if origin is Mapping:
        named = cast("dict[str, object]", _expect(value, dict, where))
        inner = get_args(kind)[1]
        return {name: _decode(entry, inner, _inside(where, name)) for name, entry in named.items()}
    if is_dataclass(kind):
        return _decode_fields(value, cast("type", kind), where)
    return _decode_plain(value, kind, where)


def _decode_fields(value: object, kind: type, where: str) -> object:
    entries = cast("dict[str, object]", _expect(value, dict, where))
    annotations = _annotations(kind)
    for name in entries.keys() ^ annotations.keys():
        state = "missing" if name in annotations else "unknown"
        raise _MismatchError(f"{_shown(_inside(where, name))} is {state}")
    return kind(
        **{
            name: _decode(entries[name], annotation, _inside(where, name))
            for name, annotation in annotations.items()
        }
    )


@cache
def _annotations(kind: type) -> Mapping[str, object]:
    return get_type_hints(kind)


def _decode_choice(value: object, choices: tuple[object, ...], where: str) -> object:
    if value not in choices:
        listed = ", ".join(map(str, choices))
        raise _MismatchError(f"{_shown(where)} is none of {listed}")
    return value


def _decode_plain(value: object, kind: type, where: str) -> object:
    if kind is float and type(value) is int:
        value = _decode_plain(value, int, where)
        return float(cast("int", value))
    _expect(value, kind, where)
    if isinstance(value, int | float) and not _is_sane(value):
        raise _MismatchError(f"{_shown(where)} is too large")
    return value


def _expect(value: object, kind: type, where: str) -> object:
    # By exact type: to Python true is a number, to a report it is not.
    if type(value) is not kind:
        found = _JSON_NAMES.get(type(value), type(value).__name__)
        raise _MismatchError(f"{_shown(where)} should be {_JSON_NAMES[kind]}, not {found}")
    return value


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _shown(where: str) -> str:
    # A name can come from the document: ascii() keeps a hostile one harmless, the cut short.
    return ascii(where[-80:])[1:-1] if where else "the document"
