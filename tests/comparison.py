"""Runs a case in two kernels, without the magic and with it, and says what was not the same."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff

from cells import Case
from kernels import Kernel, Ran, final_view

Changes = Mapping[str, object]
_FILES = "process: file descriptors"


@dataclass(frozen=True, slots=True)
class Pair:
    """A kernel without our extension, one with it, and the magic's line."""

    plain: Kernel
    profiled: Kernel
    magic_line: str

    def differences(self, case: Case) -> list[str]:
        """Run a case in both kernels and say each difference in a sentence."""
        is_same = False
        try:
            found = self._found(case)
            is_same = not found
            return found
        finally:
            if not is_same:
                # The next case shall not suffer from what this one left.
                for kernel in (self.plain, self.profiled):
                    kernel.start_again()

    def _found(self, case: Case) -> list[str]:
        self._align()
        plain = _Steps(self.plain, case, "")
        try:
            profiled = _Steps(self.profiled, case, self.magic_line)
        except TimeoutError:
            return ["the cell: the kernel does not answer with the magic, and does without"]
        return _differences(plain, profiled, case)

    def _align(self) -> None:
        """Let both kernels count from the same number, whatever the case before did."""
        while True:
            plain, profiled = (kernel.run("pass").count for kernel in (self.plain, self.profiled))
            if plain == profiled:
                return
            behind = self.plain if plain < profiled else self.profiled
            for _ in range(abs(plain - profiled)):
                behind.run("pass")


class _Steps:
    """What came back from each step of a case in one kernel."""

    def __init__(self, kernel: Kernel, case: Case, magic_line: str) -> None:
        source = f"{magic_line}\n{case.cell}" if magic_line else case.cell
        self.before = kernel.run(case.before)
        self.cell = kernel.run_watched(source, case.answers, case.interrupt_at)
        self.after = kernel.run(case.after, case.answers_after)


def _differences(plain: _Steps, profiled: _Steps, case: Case) -> list[str]:
    return [
        *_named("before the cell", _compared(plain.before, profiled.before)),
        *_named("the cell", _compared(plain.cell, profiled.cell)),
        *_named("the cell", _wrong_reports(profiled.cell, case)),
        *_named("after the cell", _compared(plain.after, profiled.after)),
    ]


def _named(step: str, found: Iterable[str]) -> list[str]:
    return [f"{step}: {difference}" for difference in found]


def _compared(plain: Ran, profiled: Ran) -> Iterator[str]:
    aspects: tuple[tuple[str, object, object], ...] = (
        ("outputs", plain.own_outputs, profiled.own_outputs),
        ("what stays on the screen", final_view(plain.outputs), _without_reports(profiled)),
        ("questions", plain.prompts, profiled.prompts),
        ("reply", plain.reply, profiled.reply),
        (
            "changes in the kernel",
            _without_more_files(plain.changes, profiled.changes),
            profiled.changes,
        ),
    )
    for aspect, expected, actual in aspects:
        if expected != actual:
            yield f"{aspect} differ\n{_difference(expected, actual)}"


def _without_more_files(plain: Changes, profiled: Changes) -> Changes:
    """Leave out the files that the plain kernel alone has opened: ZeroMQ does so when it likes."""
    opened, also = (changes.get(_FILES) for changes in (plain, profiled))
    rest = {key: change for key, change in plain.items() if key != _FILES}
    if not isinstance(opened, dict) or not isinstance(also, dict):
        return rest
    return {
        **rest,
        _FILES: {kind: min(opened[kind], also[kind]) for kind in opened if kind in also},
    }


def _wrong_reports(ran: Ran, case: Case) -> Iterator[str]:
    shown = (len(ran.reports), len(ran.remarks))
    expected = (case.reports, 1 - case.reports)
    if shown != expected:
        yield "{} reports and {} remarks, not {} and {}".format(*shown, *expected)
    elif not ran.outputs[-1].is_ours:
        yield f"something comes after the report: {ran.outputs[-1]}"


def _without_reports(ran: Ran) -> object:
    return tuple(output for output in final_view(ran.outputs) if not output.is_ours)


def _difference(expected: object, actual: object) -> str:
    return "\n".join(unified_diff(_lines(expected), _lines(actual), "plain", "profiled", n=1))


def _lines(value: object) -> list[str]:
    text = json.dumps(value, indent=1, ensure_ascii=False, default=repr)
    return text.replace("\\n", "\n").splitlines()
