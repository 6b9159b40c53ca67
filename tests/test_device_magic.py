"""`%oomdevice`, typed into real shells: what it sets up, what it lists, what it refuses."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager

import pytest
from children import ARENA, Conversation, talk_to_python

from oommagic.devices import DeviceNow, Overview
from oommagic.report import Gpu
from oommagic.show.devices import render_html, render_text
from oommagic.tf import arena
from oommagic.units import GIB, MIB, format_bytes

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.both_ends]

_SHELL = """
from IPython.utils.capture import capture_output
from oommagic.magics import open_shell
SHELL = open_shell()
def answer(cell):
    with capture_output() as shown:
        ran = SHELL.run_cell(cell)
    texts = [shown.stdout, shown.stderr, *(each.data["text/plain"] for each in shown.outputs)]
    error = ran.error_in_exec or ran.error_before_exec
    words = " ".join("".join(texts).split())
    return {"error": type(error).__name__ if error else "", "said": words}
"""


def shell(env: Mapping[str, str] | None = None) -> AbstractContextManager[Conversation]:
    """Start a shell with the magics in a child process."""
    return talk_to_python(_SHELL, env)


def said(to: Conversation, cell: str) -> str:
    """Run a cell that must not fail, and give what it showed."""
    answer = to.ask(cell)
    assert answer["error"] == "", answer
    return str(answer["said"])


def refusal(to: Conversation, cell: str) -> str:
    """Run a cell that is refused, and give the sentence."""
    answer = to.ask(cell)
    assert answer["error"] == "UsageError", answer
    assert answer["said"].startswith("UsageError: %oomdevice: ")
    assert "Traceback" not in answer["said"]
    return str(answer["said"]).removeprefix("UsageError: %oomdevice: ")


@pytest.fixture(scope="module")
def fresh() -> Iterator[Conversation]:
    """A shell in which nothing was asked for, and TensorFlow is not imported."""
    with shell() as child:
        yield child


def test_alone_it_says_what_there_is(fresh: Conversation) -> None:
    words = said(fresh, "%oomdevice")
    assert "Training device none was asked for: `%oomdevice 2GB`" in words
    assert "TensorFlow not imported yet, so it has no devices." in words
    assert "GPUs (NVML)" in words
    for card in arena.CARDS:
        assert f"--like {card.name} {format_bytes(card.usable_bytes)} ({card.source})" in words


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("2 cats", r"'2 cats' is not a size; write it like 512MB or 1\.5GB\."),
        ("0", r"A device of 0 B is too small .*; ask for 32\.0 MB or more\."),
        ("1MB", r"A device of 1\.00 MB is too small .*; ask for 32\.0 MB or more\."),
        ("-1GB", r".*-1GB\. Ask for a size, as in 512MB, or for a card, as in --like T4;.*"),
        ("4096TB", r"A device of 4096 TB does not fit into this host's .* GB; ask for less\."),
        ("9" * 400 + "GB", r"'9*GB' is not a size; .*"),
        ("--like Voodoo 2", r"There is no figure for a card called 'Voodoo 2'; there are: T4, .*"),
        ("--like", r".*--like.* Ask for a size, .*"),
        ("2GB --like T4", r"Ask for one thing: a size, as in 512MB, or a card's name, as in T4\."),
        ("'2GB", r"No closing quotation\. Ask for a size, .*"),
    ],
)
def test_what_cannot_be_set_up_is_answered_in_one_sentence(
    fresh: Conversation, asked: str, sentence: str
) -> None:
    assert re.fullmatch(sentence, refusal(fresh, f"%oomdevice {asked}"))
    assert "none was asked for" in said(fresh, "%oomdevice")


def test_its_help_says_what_it_is_for(fresh: Conversation) -> None:
    words = said(fresh, "%oomdevice?")
    assert "Turn this CPU into a training device" in words
    assert "Ask before TensorFlow is imported" in words
    assert "--like" in words


def test_it_goes_when_the_extension_goes() -> None:
    with shell() as child:
        said(child, "%unload_ext oommagic")
        assert "not found" in child.ask("%oomdevice")["said"]
        said(child, "%load_ext oommagic")
        assert "Training device" in said(child, "%oomdevice")


TRAINING = """
x = tf.random.uniform([1000, 1000])
y = tf.exp(x) + x
del y
"""

PROFILED = f"%%oomprofile\n{TRAINING}"


def test_a_device_that_was_asked_for_runs_with_its_size_and_keeps_it() -> None:
    with shell() as child:
        coming = "this CPU is one of 256 MB from TensorFlow's first operation on (asked for at "
        assert coming in said(child, "%oomdevice 256MB")
        assert coming in said(child, "%oomdevice 0.25 GB")
        assert "this CPU is one of 192 MB" in said(child, "%oomdevice 192MB")
        said(child, f"import tensorflow as tf\n{TRAINING}")
        peak = 'tf.config.experimental.get_memory_info("CPU:0")["peak"]'
        before = said(child, peak)
        words = said(child, "%oomdevice")
        assert "this CPU is one of 192 MB (asked for at " in words
        assert re.search(r"CPU:0 4\.00 MB in use of 192 MB, peak 1\d\.\d MB", words)
        assert said(child, peak) == before
        assert "this CPU is one of 192 MB" in said(child, "%oomdevice 192MB")
        assert refusal(child, "%oomdevice 256MB") == (
            "TensorFlow has made its devices already, with a training device of 192 MB. Restart "
            "the kernel and run `%oomdevice 256MB`, or `oommagic.use_device('256MB')`, before "
            "TensorFlow is imported."
        )


def test_the_report_counts_its_memory_once() -> None:
    with shell() as child:
        said(child, "%oomdevice 192MB\nimport tensorflow as tf")
        words = said(child, PROFILED)
        assert re.search(r"Host peak \S+ .B of \S+ .B, CPU:0 included; CPU:0 peak", words)
        assert "CPU:0 runs in the host's memory: its columns are a part of the host's" in words
        assert re.search(
            r"of it CPU:0 had up to 1\d\.\d MB in use at once; with what its allocator keeps for "
            r"later, 192 MB at most\.",
            words,
        )
        assert "True" in said(
            child,
            "oommagic = __import__('oommagic')\noommagic.last_report().devices[0].is_part_of_host",
        )


def test_a_card_s_memory_is_asked_for_by_its_name() -> None:
    with shell() as child:
        words = said(child, "%oomdevice --like laptop 4gb")
        assert "this CPU is one of 2.11 GB, like laptop-4GB, from TensorFlow's first" in words


@pytest.mark.parametrize("env", [{}, ARENA], ids=["plain", "with a device of 256 MB"])
def test_too_late_says_what_happened_and_what_to_do(env: dict[str, str]) -> None:
    how = (
        "Restart the kernel and run `%oomdevice --like laptop-4GB`, or "
        "`oommagic.use_device(like='laptop-4GB')`, before TensorFlow is imported."
    )
    with shell(env) as child:
        said(child, "import tensorflow as tf")
        if not env:
            sentence = refusal(child, "%oomdevice --like laptop-4GB")
            assert sentence.startswith("TensorFlow was imported with oneDNN on, which can kill ")
            assert sentence.endswith(how)
        said(child, "x = tf.zeros([1000])")
        made = "with a training device of 256 MB" if env else "without a training device"
        assert refusal(child, "%oomdevice --like laptop-4GB") == (
            f"TensorFlow has made its devices already, {made}. {how}"
        )
        words = said(child, "%oomdevice")
        if env:
            assert "this CPU is one of 256 MB (set by the environment)." in words
        else:
            assert "none was asked for" in words
            assert "CPU:0 its allocator keeps no figures." in words


def test_a_device_that_may_not_get_full_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**ARENA, "CUDA_VISIBLE_DEVICES": "0"}.items():
        monkeypatch.setenv(name, value)
    gpus, memory = arena.warnings(available_bytes=100 * MIB, gpu_count=1)
    assert "CUDA_VISIBLE_DEVICES=-1" in gpus
    assert "Only 100 MB of the host's memory is available" in memory
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert list(arena.warnings(available_bytes=GIB, gpu_count=1)) == []
    monkeypatch.delenv("TF_CPU_ALLOCATOR_USE_BFC")
    assert list(arena.warnings(available_bytes=0, gpu_count=1)) == []


def test_gpus_and_warnings_stand_in_text_and_in_html() -> None:
    overview = Overview(
        training_device="this CPU is one of <b>.",
        tensorflow="2.21.0 is imported.",
        gpu_status="1 NVIDIA GPU, read through NVML.",
        devices=(DeviceNow("CPU:0"), DeviceNow("GPU:0", MIB, 2 * MIB, GIB)),
        gpus=(Gpu(0, "Tesla T4", total_bytes=15 * GIB),),
        warnings=("Ask for less.",),
    )
    words = " ".join(render_text(overview, 80).split())
    assert "GPU:0 1.00 MB in use of 1.00 GB, peak 2.00 MB (TensorFlow's allocator)." in words
    assert "GPU 0 (NVML) Tesla T4, 15.0 GB in all." in words
    assert "Beware Ask for less." in words
    page = render_html(overview)
    assert "one of &lt;b&gt;." in page
    assert "<dt>GPU 0 (NVML)</dt><dd>Tesla T4, 15.0 GB in all.</dd>" in page


def test_a_request_leaves_nothing_behind_where_it_was_refused(fresh: Conversation) -> None:
    refusal(fresh, "%oomdevice 4096TB")
    look = "import os\n[name for name in os.environ if name.startswith('TF_CPU')]"
    assert said(fresh, look).endswith("[]")
    assert "TF_CPU_BFC_MEM_LIMIT_IN_MB" not in os.environ
