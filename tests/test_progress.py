"""How far something is: on one line of a screen, or in an output of a notebook."""

import pytest
from kernels import Kernel, Output, running_kernels

from oommagic.progress import say_elsewhere, saying

COUNT = """\
from oommagic.progress import saying
with saying(doing="Counting") as say:
    say("one")
    say("two")"""


def text_of(output: Output) -> object:
    """What an output shows of itself, and whether it takes another's place."""
    data = output.content["data"]
    assert isinstance(data, dict)
    return output.kind, data["text/plain"]


def count(kernel: Kernel) -> list[object]:
    """Say how far it is in a kernel, and give what that shows."""
    return [text_of(output) for output in kernel.run(COUNT).outputs]


@pytest.mark.of_ipython
def test_in_a_notebook_it_has_a_place_of_its_own_and_nothing_of_it_stays() -> None:
    with running_kernels() as (kernel,):
        kernel.prepare("%load_ext oommagic")
        assert count(kernel) == [
            ("display_data", "Counting: one …"),
            ("update_display_data", "Counting: two …"),
            ("update_display_data", ""),
        ]
        kernel.prepare("%unload_ext oommagic")
        assert [output.kind for output in kernel.run(COUNT).outputs] == ["stream"]


def test_on_a_screen_the_line_is_empty_again_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with saying(doing="Counting") as say:
        say("one")
    assert capsys.readouterr().err.split("\r")[1:] == ["Counting: one …", " " * 15, ""]


def test_who_asks_for_it_hears_it_and_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[str] = []
    say_elsewhere(None)
    with saying(heard.append) as say:
        say("one")
    assert (heard, capsys.readouterr().err) == (["one"], "")
