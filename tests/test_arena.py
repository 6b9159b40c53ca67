"""A training device on the CPU: asked for in time, full when it is full, refused when late."""

import os
from typing import Any

import pytest
from children import run_python

import oommagic
from oommagic.devices import Card
from oommagic.errors import DeviceRequestError, UsageError
from oommagic.tf import arena
from oommagic.units import GIB, MIB

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.both_ends]

TRAINING = """
import oommagic
from oommagic.tf import arena
told["asked"] = oommagic.use_device("128MB").limit_bytes
told["asked_again"] = oommagic.use_device("192MB").limit_bytes
told["before"] = [arena.current().is_running, bool(arena.current().asked_at)]

import numpy as np
import keras
import tensorflow as tf

model = keras.Sequential([
    keras.Input((64, 64, 3)),
    keras.layers.Conv2D(64, 3, activation="relu"),
    keras.layers.Conv2D(64, 3, activation="relu"),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(10),
])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
images, labels = np.zeros((256, 64, 64, 3), "float32"), np.zeros(256, "int32")
try:
    model.fit(images, labels, batch_size=256, verbose=0)
except tf.errors.ResourceExhaustedError as error:
    told["ran_out"] = str(error)
told["loss"] = model.fit(images[:8], labels[:8], batch_size=4, verbose=0).history["loss"]

told["running"] = arena.current().is_running
told["same"] = oommagic.use_device("192MB").is_running
told["owns"] = [name for name in ("CPU:0", "CPU:1", "GPU:0", "GPU:1") if arena.owns(name)]
told["trusts"] = [name for name in ("CPU:0", "CPU:1", "GPU:0", "GPU:1") if arena.trusts(name)]
try:
    oommagic.use_device("256MB")
except arena.DeviceRequestError as error:
    told["other_size"] = str(error)
"""

LATE = """
import os
import tensorflow as tf
import oommagic
from oommagic.tf import arena
from oommagic.tf.allocator import Allocators

def ask():
    before = dict(os.environ)
    try:
        oommagic.use_device("512MB")
    except arena.DeviceRequestError as error:
        return [str(error), dict(os.environ) == before]

if os.environ["TF_ENABLE_ONEDNN_OPTS"] == "1":  # with 0 it is in time
    told["no_devices_yet"] = ask()
kept = tf.zeros([1024, 1024])
told["devices_made"] = ask()
os.environ.update({"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "512"})
told["set_by_hand"] = arena.current().is_running
watch = Allocators()
told["status"] = [watch.find(), watch.status()]
"""

JUST_IN_TIME = """
import tensorflow as tf
import oommagic
from oommagic.tf import arena
from oommagic.tf.allocator import Allocators
tf.config.list_physical_devices()
oommagic.use_device("512MB")
kept = tf.zeros([1024, 1024])
watch = Allocators()
told["found"] = [watch.find(), watch.limit_bytes("CPU:0"), arena.current().is_running]
"""


@pytest.fixture(scope="module")
def training() -> dict[str, Any]:
    return run_python(TRAINING)


def test_before_tensorflow_looks_the_last_size_asked_for_counts(training: dict[str, Any]) -> None:
    assert training["asked"] == 128 * MIB
    assert training["asked_again"] == 192 * MIB
    assert training["before"] == [False, True]


def test_a_full_device_raises_as_a_gpu_does_and_then_trains_smaller(
    training: dict[str, Any],
) -> None:
    assert "OOM when allocating tensor with shape" in training["ran_out"]
    assert len(training["loss"]) == 1


def test_a_running_device_may_be_asked_for_again_at_its_size_alone(
    training: dict[str, Any],
) -> None:
    assert training["running"]
    assert training["same"]
    assert training["other_size"] == (
        "TensorFlow has made its devices already, with a training device of 192 MB. "
        "Restart the kernel and run `%oomdevice 256MB`, or `oommagic.use_device('256MB')`, before "
        "TensorFlow is imported."
    )


def test_the_first_processor_is_the_training_device(training: dict[str, Any]) -> None:
    assert training["owns"] == ["CPU:0"]
    assert training["trusts"] == ["CPU:0", "GPU:0", "GPU:1"]


@pytest.mark.parametrize("onednn", ["0", "1"])
def test_too_late_is_said_and_changes_nothing(onednn: str) -> None:
    told = run_python(LATE, {"TF_ENABLE_ONEDNN_OPTS": onednn})
    how = (
        "Restart the kernel and run `%oomdevice 512MB`, or `oommagic.use_device('512MB')`, before "
        "TensorFlow is imported."
    )
    made = f"TensorFlow has made its devices already, without a training device. {how}"
    assert told["devices_made"] == [made, True]
    assert told["set_by_hand"] is False
    found, status = told["status"]
    assert not found
    assert status.startswith("The training device was asked for ")
    if onednn == "1":
        sentence, unchanged = told["no_devices_yet"]
        assert sentence.startswith("TensorFlow was imported with oneDNN on")
        assert sentence.endswith(how)
        assert unchanged


def test_after_the_import_it_still_works_where_onednn_was_off() -> None:
    told = run_python(JUST_IN_TIME, {"TF_ENABLE_ONEDNN_OPTS": "0"})
    assert told["found"] == [True, 512 * MIB, True]


def test_a_size_that_makes_no_sense_is_refused_in_words() -> None:
    with pytest.raises(DeviceRequestError, match=r"1\.00 MB is too small .* ask for 32\.0 MB"):
        oommagic.use_device("1MB")
    with pytest.raises(
        DeviceRequestError, match=r"8\.00 GB does not fit into this host's 4\.00 GB"
    ):
        arena.use_device(8 * GIB, host_limit_bytes=4 * GIB)
    with pytest.raises(DeviceRequestError, match="does not fit into this host"):
        oommagic.use_device("4096TB")
    with pytest.raises(UsageError, match="'plenty' is not a size"):
        oommagic.use_device("plenty")
    with pytest.raises(UsageError, match="Ask for one thing: a size, as in 512MB, or a card"):
        oommagic.use_device()
    assert "TF_CPU_BFC_MEM_LIMIT_IN_MB" not in os.environ


def test_a_device_can_be_as_large_as_a_card_is_for_tensorflow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB", "TF_ENABLE_ONEDNN_OPTS"):
        monkeypatch.setenv(name, "0")  # given back after the test
    device = arena.use_device(like="rtx 3060", host_limit_bytes=64 * GIB)
    assert device.limit_bytes == 9709 * MIB
    assert device.like == "RTX3060"
    assert arena.current() == device


def test_an_unknown_card_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match=r"card called 'Voodoo 2'; there are: T4, P100, V100,"):
        oommagic.use_device(like="Voodoo 2")


@pytest.mark.parametrize("card", arena.CARDS, ids=lambda card: card.name)
def test_each_card_says_where_its_figure_comes_from(card: Card) -> None:
    assert card.source.startswith(("TensorFlow's log on a ", "TensorFlow's log on an "))
    assert card.usable_bytes > 2 * GIB


FULL_OF_ARRAYS = """
import oommagic
oommagic.use_device("64MB")
oommagic.use_device("64MB")
import sys
import numpy as np
import tensorflow as tf

def outcome(make):
    try:
        return make().dtype.name
    except Exception as error:
        return type(error).__name__, str(error)

kept = [tf.ones((2**20,)) for _ in range(15)]  # 60 of 64 MB
peak = tf.config.experimental.get_memory_info("CPU:0")["peak"]
array = np.zeros((3, 2**20), "float32")
told["array"] = outcome(lambda: tf.constant(array))
told["list"] = outcome(lambda: tf.convert_to_tensor([array[0], array[1]]))
told["as another type"] = outcome(lambda: tf.constant(array, "float16"))
told["small"] = outcome(lambda: tf.constant(array[:, :9]))
told["of no type"] = outcome(lambda: tf.constant(array, "string"))[0]
told["empty"] = outcome(lambda: tf.constant([]))
told["peak"] = tf.config.experimental.get_memory_info("CPU:0")["peak"] - peak
told["hooks"] = [type(finder).__module__ for finder in sys.meta_path]
del kept
told["room again"] = outcome(lambda: tf.constant(array))
"""


@pytest.mark.long  # three failures of ten seconds each
def test_an_array_that_does_not_fit_raises_and_one_that_does_is_as_it_was() -> None:
    told = run_python(FULL_OF_ARRAYS)
    for name, shape in {
        "array": "3,1048576",
        "list": "2,1048576",
        "as another type": "3,1048576",
    }.items():
        kind, text = told[name]
        assert kind == "ResourceExhaustedError"
        assert f"OOM when allocating tensor with shape[{shape}]" in text
        assert "[Op:_EagerConst]" in text
    assert told["small"] == told["empty"] == told["room again"] == "float32"
    assert told["of no type"] in {"TypeError", "ValueError"}
    assert told["peak"] < MIB
    assert not [name for name in told["hooks"] if name.startswith("oommagic")]
