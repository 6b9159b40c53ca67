"""Each way of running out of memory becomes the same facts: raised for real, or as it was told."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from children import ARENA, run_after_import, run_python
from hypothesis import given
from hypothesis import strategies as st

from oommagic.report import Failure
from oommagic.tf.dumps import DumpFolder, device_of
from oommagic.tf.failures import failure_from_text, failure_of
from oommagic.units import GIB, KIB, MIB

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.both_ends]

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
SITE = "/usr/local/lib/python3.11/dist-packages"
HINT = (
    "Hint: If you want to see a list of allocated tensors when OOM happens, add "
    "report_tensor_allocations_upon_oom to RunOptions for current allocation info. "
    "This isn't available when running in Eager mode.\n"
)

# ---- As TensorFlow, XLA, CUDA and NumPy word them -----------------------------------------------

EAGER = (
    f"{{{{function_node __wrapped__Conv2D_device_{GPU}}}}} OOM when allocating tensor with "
    f"shape[64,112,112,64] and type float on {GPU} by allocator GPU_0_bfc [Op:Conv2D] name: "
)
GRAPH = f"""Graph execution error:

Detected at node gradient_tape/resnet50_1/conv1_conv_1/convolution/Conv2DBackpropFilter defined at \
(most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main

  File "{SITE}/colab_kernel_launcher.py", line 37, in <module>

  File "{SITE}/IPython/core/interactiveshell.py", line 3553, in run_code

  File "<ipython-input-11-621bb3a51dce>", line 9, in <cell line: 9>

  File "{SITE}/keras/src/utils/traceback_utils.py", line 117, in error_handler

  File "{SITE}/keras/src/backend/tensorflow/trainer.py", line 399, in fit

OOM when allocating tensor with shape[7,7,3,64] and type half on {GPU} by allocator GPU_0_bfc
\t [[{{{{node gradient_tape/resnet50_1/conv1_conv_1/convolution/Conv2DBackpropFilter}}}}]]
{HINT} [Op:__inference_multi_step_on_iterator_331]"""
NO_SHAPE = f"""Graph execution error:

Detected at node functional_1_1/efficientnetb3_1/block5d_bn_1/moments/SquaredDifference defined at \
(most recent call last):
  File "/tmp/ipykernel_55/3957240115.py", line 44, in <cell line: 0>

failed to allocate memory
\t [[{{{{node functional_1_1/efficientnetb3_1/block5d_bn_1/moments/SquaredDifference}}}}]]
{HINT} [Op:__inference_multi_step_on_iterator_79087]"""
IN_A_LAYER = f"""Exception encountered when calling RandomContrast.call().

{{{{function_node __wrapped__Maximum_device_{GPU}}}}} failed to allocate memory [Op:Maximum] name: \


Arguments received by RandomContrast.call():
  • data=tf.Tensor(shape=(2000, 512, 512, 3), dtype=float32)
  • training=True"""
TWO_ROOTS = f"""2 root error(s) found.
  (0) RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[32,960,10,10] and type float on \
{GPU} by allocator GPU_0_bfc
\t [[{{{{node model_1/conv_3/Conv2D}}}}]]
{HINT}
\t [[Loss/Cast_232/_16919]]
  (1) RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[1] and type float on {GPU} by \
allocator GPU_0_bfc"""
XLA = f"""Graph execution error:

Detected at node StatefulPartitionedCall defined at (most recent call last):
  File "/tmp/ipykernel_55/3957240115.py", line 44, in <cell line: 0>

  File "{SITE}/keras/src/utils/traceback_utils.py", line 117, in error_handler

  File "{SITE}/keras/src/backend/tensorflow/trainer.py", line 371, in fit

Out of memory while trying to allocate 53530461464 bytes.
\t [[{{{{node StatefulPartitionedCall}}}}]]
{HINT} [Op:__inference_multi_step_on_iterator_130426]"""
XLA_BUFFERS = """Out of memory while trying to allocate 22271409880 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:   29.54MiB
     preallocated temp allocation:   20.74GiB
                 total allocation:   20.77GiB
Peak buffers:
\tBuffer 1:
\t\tSize: 3.40GiB
\t\tOperator: op_name="XLA_Args"
\t\tEntry Parameter Subshape: f32[443156,3700]
\tBuffer 2:
\t\tSize: 3.40GiB
\t\tOperator: op_type="MatMul" op_name="gradient_tape/synthesis_1/lstm_cell_2_1/MatMul" \
source_file="/root/code/ops.py" source_line=1177
\t\tShape: f32[1200,476,1600]
"""
SCRATCH = """Graph execution error:

Detected at node gradient_tape/model_1/conv3d_20_1/Conv3D/Conv3DBackpropFilterV2 defined at (most \
recent call last):
<stack traces unavailable>
CUDNN failed to allocate the scratch space for the runner or to find a working no-scratch runner.
\t [[{{node gradient_tape/model_1/conv3d_20_1/Conv3D/Conv3DBackpropFilterV2}}]] \
[Op:__inference_train_function_1]"""
COPY = (
    f"Failed copying input tensor from {CPU} to {GPU} in order to run _EagerConst: "
    "Dst tensor is not initialized."
)
NO_ALGORITHM = """No algorithm worked!  Error messages:
  Profiling failure on CUDNN engine eng11{}: UNKNOWN: CUDNN_STATUS_ALLOC_FAILED
in tensorflow/compiler/xla/stream_executor/cuda/cuda_dnn.cc(5333): 'status' [Op:Conv2D]"""
ORDINAL = "Failed to allocate request for 1.20GiB (1288490188B) on device ordinal 1"
HELD = "CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory"
DRIVER = "failed to allocate 1.20GiB (1288490240 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out"
NUMPY = (
    "Unable to allocate 7.45 GiB for an array with shape (1000, 1000, 1000) and data type float64"
)
BATCH = (
    f"{{{{function_node __wrapped__IteratorGetNext_output_types_1_device_{CPU}}}}} "
    "Failed to allocate memory for the batch of component 0 [Op:IteratorGetNext] name: "
)
GENERATOR = f"""{{{{function_node __wrapped__IteratorGetNext_output_types_1_device_{CPU}}}}} \
MemoryError: Unable to allocate 1.12 GiB for an array with shape (300, 1000, 1000) and data type \
float32
Traceback (most recent call last):

  File "{SITE}/tensorflow/python/ops/script_ops.py", line 269, in __call__
    ret = func(*args)
          ^^^^^^^^^^^

  File "/tmp/ipykernel_7/99.py", line 4, in examples
    yield np.zeros((300, 1000, 1000), "float32")

numpy._core._exceptions._ArrayMemoryError: Unable to allocate 1.12 GiB for an array with shape \
(300, 1000, 1000) and data type float32

\t [[{{{{node PyFunc}}}}]] [Op:IteratorGetNext] name: """

ASKED_64_BITS = "OOM when allocating tensor with shape[] and type int64"

EXHAUSTED, INTERNAL = "ResourceExhaustedError", "InternalError"
TOLD: dict[str, tuple[str, str, dict[str, Any]]] = {
    "eager": (
        EXHAUSTED,
        EAGER,
        {
            "kind": "allocation",
            "place": "device",
            "device": "GPU:0",
            "allocator": "GPU_0_bfc",
            "shape": (64, 112, 112, 64),
            "dtype": "float32",
            "asked_bytes": 64 * 112 * 112 * 64 * 4,
            "op": "Conv2D",
            "text": EAGER.partition("}} ")[2].partition(" [Op")[0],
        },
    ),
    "graph": (
        EXHAUSTED,
        GRAPH,
        {
            "device": "GPU:0",
            "dtype": "float16",
            "asked_bytes": 7 * 7 * 3 * 64 * 2,
            "op": "gradient_tape/resnet50_1/conv1_conv_1/convolution/Conv2DBackpropFilter",
            "layer": "conv1_conv",
            "filename": "<ipython-input-11-621bb3a51dce>",
            "line_number": 9,
        },
    ),
    "without a shape": (
        EXHAUSTED,
        NO_SHAPE,
        {
            "place": "device",
            "shape": None,
            "asked_bytes": None,
            "text": "failed to allocate memory",
            "op": "functional_1_1/efficientnetb3_1/block5d_bn_1/moments/SquaredDifference",
            "line_number": 44,
        },
    ),
    "in a Keras layer": (EXHAUSTED, IN_A_LAYER, {"device": "GPU:0", "op": "Maximum"}),
    "several roots": (
        EXHAUSTED,
        TWO_ROOTS,
        {"shape": (32, 960, 10, 10), "op": "model_1/conv_3/Conv2D", "layer": "conv"},
    ),
    "a temporary tensor": (
        EXHAUSTED,
        "OOM when allocating temporary tensor with shape[3,2]",
        {"shape": (3, 2), "asked_bytes": None, "place": "device"},
    ),
    "a constant": (
        EXHAUSTED,
        "OOM when allocating tensor of shape [32256512,512] and type float",
        {"asked_bytes": 32256512 * 512 * 4},
    ),
    "XLA": (
        EXHAUSTED,
        XLA,
        {
            "kind": "compile",
            "place": "device",
            "asked_bytes": 53530461464,
            "filename": "/tmp/ipykernel_55/3957240115.py",  # noqa: S108 (a name, no file)
            "line_number": 44,
        },
    ),
    "XLA with its buffers": (
        EXHAUSTED,
        XLA_BUFFERS,
        {
            "asked_bytes": 22271409880,
            "op": "gradient_tape/synthesis_1/lstm_cell_2_1/MatMul",
            "layer": "lstm_cell_2",
        },
    ),
    "XLA since 2.20": (
        EXHAUSTED,
        "Out of memory while trying to allocate 1.50GiB with allocator GPU_1_bfc on device 1.",
        {"asked_bytes": 3 * GIB // 2, "device": "GPU:1", "allocator": "GPU_1_bfc"},
    ),
    "XLA's host memory": (
        EXHAUSTED,
        "Out of host memory while trying to allocate 1.50GiB with allocator x on device 0.",
        {"place": "host", "device": "", "asked_bytes": 3 * GIB // 2},
    ),
    "XLA by ordinal": (
        INTERNAL,
        ORDINAL,
        {"kind": "compile", "device": "GPU:1", "asked_bytes": 1288490188},
    ),
    "an autotuner's limit": (
        EXHAUSTED,
        "Allocating 123456 bytes exceeds the memory limit of 4096 bytes.",
        {"kind": "compile", "asked_bytes": 123456},
    ),
    "cuDNN's scratch memory": (
        "UnknownError",
        SCRATCH,
        {"kind": "scratch", "place": "device", "layer": "conv3d_20"},
    ),
    "cuDNN's own allocation": (
        "NotFoundError",
        NO_ALGORITHM,
        {"kind": "scratch", "place": "device", "op": "Conv2D"},
    ),
    "cuBLAS": (
        INTERNAL,
        "failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED",
        {"kind": "scratch"},
    ),
    "a copy": (
        INTERNAL,
        COPY,
        {"kind": "copy", "place": "device", "device": "GPU:0", "op": "_EagerConst"},
    ),
    "a device that is taken": (INTERNAL, HELD, {"kind": "allocation", "device": "GPU:0"}),
    "the driver": (EXHAUSTED, DRIVER, {"place": "device", "asked_bytes": 1288490240}),
    "an older driver": (
        "InternalError",
        "failed to allocate 2.20G (2362232064 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out",
        {"place": "device", "asked_bytes": 2362232064},
    ),
    "host, oneDNN": (
        EXHAUSTED,
        f"OOM when allocating tensor with shape[2] and type double on {CPU} by allocator mklcpu",
        {"place": "host", "device": "", "asked_bytes": 16, "allocator": "mklcpu"},
    ),
    "host, pinned": (
        EXHAUSTED,
        f"OOM when allocating tensor with shape[2] on {GPU} by allocator gpu_host_bfc",
        {"place": "host", "device": ""},
    ),
    "training device": (
        EXHAUSTED,
        f"{ASKED_64_BITS} on {CPU} by allocator bfc_cpu_allocator_for_gpu",
        {"place": "device", "device": "CPU:0", "shape": (), "asked_bytes": 8},
    ),
    "tf.data": (EXHAUSTED, BATCH, {"kind": "dataset", "place": "host", "op": "IteratorGetNext"}),
    "a generator": (
        EXHAUSTED,
        GENERATOR,
        {
            "kind": "python",
            "place": "host",
            "asked_bytes": 300 * 1000 * 1000 * 4,
            "filename": "/tmp/ipykernel_7/99.py",  # noqa: S108 (a name, no file)
            "line_number": 4,
        },
    ),
    "NumPy": (
        "numpy._core._exceptions._ArrayMemoryError",
        NUMPY,
        {
            "kind": "python",
            "place": "host",
            "asked_bytes": 8_000_000_000,
            "shape": (1000, 1000, 1000),
            "dtype": "float64",
            "error_type": "_ArrayMemoryError",
        },
    ),
    "NumPy, a text type": (
        "MemoryError",
        "Unable to allocate 1.00 KiB for an array with shape (64,) and data type <U4",
        {"asked_bytes": KIB, "shape": (64,), "dtype": "<U4"},
    ),
    "NumPy, a type of unknown size": (
        "MemoryError",
        "Unable to allocate 286. MiB for an array with shape (3,) and data type mine",
        {"asked_bytes": 286 * MIB},
    ),
    "Python": ("MemoryError", "", {"kind": "python", "text": "MemoryError", "asked_bytes": None}),
    "C++": ("MemoryError", "std::bad_alloc", {"place": "host", "text": "std::bad_alloc"}),
    "mmap": ("OSError", "[Errno 12] Cannot allocate memory", {"kind": "python", "place": "host"}),
}


@pytest.mark.parametrize("name", TOLD)
def test_each_text_tells_its_facts(name: str) -> None:
    error_type, text, expected = TOLD[name]
    assert facts(failure_from_text(error_type, text), expected) == expected


OTHER_ERRORS = {
    "words": RuntimeError("out of memory in my brain"),
    "a full disk": OSError(28, "No space left on device"),
    "a key": KeyError("OOM when allocating tensor with shape[1] and type float"),
    "open files": OSError(24, "Too many open files"),
    "nothing": ValueError(),
    "what a user says": RuntimeError("failed to allocate memory for the new employee"),
}
OTHER_TEXTS = {
    "registers": (EXHAUSTED, "Discarding compilation due to register spilling."),
    "a kernel's shared memory": (
        EXHAUSTED,
        "Shared memory size limit exceeded: requested 262144, available: 101376",
    ),
    "a message's size": (EXHAUSTED, "Received message larger than max (6 vs. 4)"),
    "a device without BLAS": (
        INTERNAL,
        "Attempting to perform BLAS operation using StreamExecutor without BLAS support",
    ),
    "no error at all": ("", "Epoch 1/5, and the room ran out of memory foam"),
}


@pytest.mark.parametrize("name", OTHER_ERRORS)
def test_other_errors_are_no_failures_of_memory(name: str) -> None:
    error = OTHER_ERRORS[name]
    assert failure_of(error) is None
    assert failure_from_text(type(error).__name__, str(error)) is None


@pytest.mark.parametrize("name", OTHER_TEXTS)
def test_other_texts_are_no_failures_of_memory(name: str) -> None:
    assert failure_from_text(*OTHER_TEXTS[name]) is None


_pieces = st.sampled_from(
    [
        *re.split(r"(\s)", GRAPH + GENERATOR + XLA_BUFFERS),
        EAGER,
        NUMPY,
        ORDINAL,
        "9" * 5000,
        "(",
        "[",
    ]
)


@given(
    st.sampled_from([EXHAUSTED, INTERNAL, "RuntimeError", "MemoryError", "OSError", ""])
    | st.text(),
    st.text() | st.lists(_pieces | st.text(), max_size=40).map("".join),
)
def test_no_text_breaks_it(error_type: str, text: str) -> None:
    failure = failure_from_text(error_type, text)
    assert failure is None or failure.place in {"device", "host"}


# ---- From errors ------------------------------------------------------------------------------


def test_it_is_found_behind_the_error_that_was_raised_for_it() -> None:
    for error in (raised_from(MemoryError("gone")), raised_while_handling(MemoryError("gone"))):
        failure = failure_of(error)
        assert failure is not None
        assert (failure.kind, failure.text, failure.error_type) == ("python", "gone", "MemoryError")


def test_it_is_found_in_a_group_of_errors() -> None:
    group = ExceptionGroup("two", [KeyError(1), ExceptionGroup("in", [raised_from(MemoryError())])])
    failure = failure_of(group)
    assert failure is not None
    assert failure.place == "host"


def test_errors_that_refer_to_each_other_come_to_an_end() -> None:
    one, other = ValueError(), KeyError()
    one.__context__, other.__cause__ = other, one
    assert failure_of(one) is None


def test_an_error_that_cannot_be_said_is_survived() -> None:
    class MuteError(RuntimeError):
        def __str__(self) -> str:
            raise ValueError

    assert failure_of(MuteError()) is None


def test_the_line_is_the_innermost_of_the_user_s_own() -> None:
    cell = "import secrets\n\ndef read():\n    return secrets.token_bytes(2**62)\n\nread()"
    failure = failure_of(raised_by(cell))
    assert failure is not None
    assert (failure.filename, failure.line_number) == ("<ipython-input-3-cell>", 4)


def test_a_failed_mmap_is_told_by_its_number_in_any_language() -> None:
    failure = failure_of(OSError(12, "Nicht genügend Hauptspeicher verfügbar"))
    assert failure is not None
    assert failure.kind == "python"


TRACEBACK = f"""Traceback (most recent call last):
  File "/home/ada/train.py", line 71, in <module>
    main()
  File "/home/ada/train.py", line 66, in main
    model.fit(images, labels)
  File "{SITE}/keras/src/utils/traceback_utils.py", line 122, in error_handler
    raise e.with_traceback(filtered_tb) from None
tensorflow.python.framework.errors_impl.ResourceExhaustedError: {XLA}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/ada/train.py", line 73, in <module>
    clean()
KeyError: 'OOM when allocating tensor with shape[1] and type float'
"""
IPYTHON_TRACEBACK = f"""ResourceExhaustedError                    Traceback (most recent call last)
Cell In[11], line 9
      7     mode="min",
----> 9 trainer.fit(training_dataset)

File {SITE}/tensorflow/python/framework/ops.py:6002, in raise_from_not_ok_status(e, name)
-> 6002   raise core._status_to_exception(e) from None

ResourceExhaustedError: {EAGER}"""
OLD_IPYTHON_TRACEBACK = f"""ResourceExhaustedError                Traceback (most recent call last)
<ipython-input-11-621bb3a51dce> in <cell line: 9>()
      7     mode="min",
----> 9 trainer.fit(training_dataset)

{SITE}/tensorflow/python/framework/ops.py in raise_from_not_ok_status(e, name)
-> 6002   raise core._status_to_exception(e) from None

ResourceExhaustedError: {EAGER}"""


@pytest.mark.parametrize(
    ("text", "filename", "line"),
    [
        (TRACEBACK, "/home/ada/train.py", 66),
        (IPYTHON_TRACEBACK, "In[11]", 9),
        (OLD_IPYTHON_TRACEBACK, "<ipython-input-11-621bb3a51dce>", 9),
    ],
    ids=["python", "ipython", "ipython 7"],
)
def test_a_saved_traceback_tells_the_error_and_the_line(
    text: str, filename: str, line: int
) -> None:
    failure = failure_from_text("", text)
    assert failure is not None
    assert failure.error_type == "ResourceExhaustedError"
    assert (failure.filename, failure.line_number) == (filename, line)


# ---- Really raised -----------------------------------------------------------------------------

# Cells as a notebook runs them; of each is told what it failed of.
CELLS = """
import dataclasses, linecache
from oommagic.tf.failures import failure_of

NAMES = {}

def run(name, source, complete=lambda failure: failure):
    file = f"/tmp/ipykernel_7/{name}.py"
    linecache.cache[file] = len(source), None, source.splitlines(True), file
    try:
        exec(compile(source, file, "exec"), NAMES)
    except BaseException as error:
        told[name] = dataclasses.asdict(complete(failure_of(error)))
"""

ON_THE_ARENA = (
    CELLS
    + """
import ctypes, os, threading
from oommagic.tf.dumps import DumpFolder

run("start", '''
import keras, numpy as np, tensorflow as tf
kept = tf.random.uniform([4, 1024, 1024])

class Wide(keras.layers.Layer):
    def call(self, inputs):
        wide = tf.tile(inputs, [1, 500_000])
        return wide[:, :10]

@tf.function
def double(values):
    return 2 * tf.tile(values, [2_000_000, 1])

@tf.function(jit_compile=True)
def compiled(values):
    big = tf.random.normal([40_000, 64]) * values
    return tf.sort(tf.matmul(big, big, transpose_b=True), axis=0)
''')

folder = DumpFolder()
folder.open()
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
place = os.path.dirname(libc.getenv(b"TF_BFC_MEMORY_DUMP"))
told["seen by the user"] = "TF_BFC_MEMORY_DUMP" in os.environ
told["dumped before"] = folder.read() is not None

# Each waits for ten seconds, so they wait together.
AT_ONCE = {
    "eager": "# an image\\nx = tf.zeros([1000, 1000, 100])",
    "function": "def call():\\n    return double(tf.ones([1, 64]))\\ncall()",
    "compiled": "compiled(tf.ones([1]))",
    "dataset": '''
rows = tf.data.Dataset.range(9000).map(lambda row: tf.fill([10_000], row))
for batch in rows.batch(9000):
    pass
''',
}
threads = [threading.Thread(target=run, args=cell) for cell in AT_ONCE.items()]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
told["files"] = len(os.listdir(place))
folder.prune()
told["pruned"] = len(os.listdir(place))
run("fit", '''
model = keras.Sequential([keras.Input((100,)), Wide(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.zeros((64, 100))
model.fit(x, x[:, :1], batch_size=64, verbose=0)
''', folder.add_to)

dump = folder.read("CPU:0")
told["in use"] = dump.in_use_bytes
told["another device's"] = folder.read("GPU:0") is not None
folder.close()
told["left"] = [os.path.exists(place), folder.read() is not None]
told["variable left"] = libc.getenv(b"TF_BFC_MEMORY_DUMP") is not None
"""
)

ON_THE_HOST = (
    CELLS
    + """
import resource

def with_little(name, source):
    status = open("/proc/self/status").read()
    used = int(status.partition("VmData:")[2].split()[0]) * 1024
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + 300 * 2**20, hard))
    try:
        run(name, source)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

run("start", "import keras, mmap, numpy as np, tensorflow as tf\\ntf.zeros([10]) + 1")
with_little("array", "x = 1\\ny = np.ones((1000, 1000, 1000))")
with_little("categories", "y = keras.utils.to_categorical(np.zeros(1_000_000, int), 1000)")
with_little("bytes", "bytearray(2**30)")
with_little("map", "mmap.mmap(-1, 2**30, flags=mmap.MAP_PRIVATE, prot=3)")
with_little("tensor", "tf.ones([1000, 1000, 300])")
if HAS_ALL:
    with_little("generator", '''
def examples():
    yield np.zeros((300, 1000, 1000), "float32")
data = tf.data.Dataset.from_generator(examples, output_signature=tf.TensorSpec((300, 1000, 1000)))
for batch in data:
    pass
''')
    with_little("batch", '''
rows = tf.data.Dataset.range(9000).map(lambda row: tf.fill([10_000], row))
for batch in rows.batch(9000):
    pass
''')
"""
)


@pytest.fixture(scope="module")
def arena() -> dict[str, Any]:
    return run_after_import(ON_THE_ARENA, ARENA)


@pytest.fixture(scope="module")
def host() -> dict[str, Any]:
    return run_after_import(f"HAS_ALL = True\n{ON_THE_HOST}")


ON_THE_ARENA_IT_SAYS: dict[str, dict[str, Any]] = {
    "eager": {
        "kind": "allocation",
        "op": "Fill",
        "shape": [1000, 1000, 100],
        "asked_bytes": 400_000_000,
        "line_number": 2,
        "line_source": "x = tf.zeros([1000, 1000, 100])",
    },
    "function": {
        "kind": "allocation",
        "op": "Tile",
        "shape": [2_000_000, 64],
        "asked_bytes": 512_000_000,
        "filename": "/tmp/ipykernel_7/start.py",  # noqa: S108 (a name, no file)
        "line_source": "return 2 * tf.tile(values, [2_000_000, 1])",
    },
    "compiled": {"kind": "compile", "shape": None, "line_source": "compiled(tf.ones([1]))"},
    "dataset": {
        "kind": "dataset",
        "op": "IteratorGetNext",
        "line_source": "for batch in rows.batch(9000):",
    },
    "fit": {
        "kind": "allocation",
        "op": "sequential_1/wide_1/Tile",
        "layer": "wide",
        "shape": [64, 50_000_000],
        "dtype": "float32",
        "asked_bytes": 12_800_000_000,
        "line_source": "wide = tf.tile(inputs, [1, 500_000])",
    },
}


@pytest.mark.parametrize("name", ON_THE_ARENA_IT_SAYS)
def test_what_runs_out_on_the_training_device_is_told(arena: dict[str, Any], name: str) -> None:
    expected = {
        "place": "device",
        "device": "CPU:0",
        "error_type": "ResourceExhaustedError",
        "limit_bytes": 256 * MIB,
        **ON_THE_ARENA_IT_SAYS[name],
    }
    assert {field: arena[name][field] for field in expected} == expected


def test_the_dump_tells_what_was_in_use_when_it_failed(arena: dict[str, Any]) -> None:
    in_use = arena["in use"]
    assert in_use == arena["fit"]["in_use_bytes"]
    assert 16 * MIB < in_use < arena["fit"]["limit_bytes"]
    free = arena["fit"]["limit_bytes"] - in_use
    assert 0 < arena["fit"]["largest_free_bytes"] <= free
    assert not arena["another device's"]


def test_nothing_is_left_of_the_dumps_and_the_user_sees_nothing(arena: dict[str, Any]) -> None:
    assert not arena["seen by the user"]
    assert not arena["dumped before"]
    assert arena["left"] == [False, False]
    assert not arena["variable left"]
    assert arena["pruned"] == 16 < arena["files"]


ON_THE_HOST_IT_SAYS: dict[str, dict[str, Any]] = {
    "array": {
        "kind": "python",
        "error_type": "MemoryError",
        "asked_bytes": 8_000_000_000,
        "line_number": 2,
    },
    "categories": {"kind": "python", "shape": [1_000_000, 1000], "line_number": 1},
    "bytes": {"kind": "python", "text": "MemoryError", "asked_bytes": None},
    "map": {"kind": "python", "error_type": "OSError", "line_number": 1},
    "tensor": {
        "kind": "allocation",
        "allocator": "cpu",
        "asked_bytes": 1_200_000_000,
        "line_source": "tf.ones([1000, 1000, 300])",
    },
    "generator": {
        "kind": "python",
        "asked_bytes": 1_200_000_000,
        "line_source": 'yield np.zeros((300, 1000, 1000), "float32")',
    },
    "batch": {"kind": "dataset", "line_source": "for batch in rows.batch(9000):"},
}


@pytest.mark.parametrize("name", ON_THE_HOST_IT_SAYS)
def test_what_runs_out_on_the_host_is_told(host: dict[str, Any], name: str) -> None:
    expected = {"place": "host", "device": "", "limit_bytes": None, **ON_THE_HOST_IT_SAYS[name]}
    assert {field: host[name][field] for field in expected} == expected


@pytest.mark.slow_once
def test_onednn_s_allocator_is_the_host_s() -> None:
    told = run_python(f"HAS_ALL = False\n{ON_THE_HOST}", {"TF_ENABLE_ONEDNN_OPTS": "1"})
    assert (told["tensor"]["place"], told["tensor"]["allocator"]) == ("host", "mklcpu")


# ---- The folder for dumps -----------------------------------------------------------------------


def test_a_user_s_own_dumps_are_left_where_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TF_BFC_MEMORY_DUMP", str(tmp_path / "mine"))
    for number in range(40):
        (tmp_path / f"mine_GPU_0_bfc.{number}").touch()
    folder = DumpFolder()
    folder.open()
    folder.prune()
    folder.close()
    assert len(list(tmp_path.iterdir())) == 40
    assert os.environ["TF_BFC_MEMORY_DUMP"] == str(tmp_path / "mine")


def test_the_dump_of_an_earlier_failure_is_not_taken_for_the_last_one_s() -> None:
    told = run_after_import(
        """
import os, tempfile
import tensorflow as tf
from tensorflow.core.protobuf.bfc_memory_map_pb2 import MemoryDump
from oommagic.tf.caught_errors import CaughtErrors
from oommagic.tf.dumps import DumpFolder
os.environ["TF_BFC_MEMORY_DUMP"] = prefix = tempfile.mkdtemp() + "/dump"
folder = DumpFolder()
folder.open()
def write(second, in_use):
    dump = MemoryDump(allocator_name="GPU_0_bfc")
    dump.stats.bytes_in_use = in_use
    with open(f"{prefix}_GPU_0_bfc.{second}000000", "wb") as file:
        file.write(dump.SerializeToString())
def in_use(since_s):
    dump = folder.read("GPU:0", since_s)
    return None if dump is None else dump.in_use_bytes
write(1000, 112)
told["one failure"] = in_use(0.0)
told["one that wrote none"] = in_use(1010.0)
write(1010, 4)
told["two failures"] = in_use(1010.0)
caught = CaughtErrors()
for second in (1010.0, 1010.1, 1020.2, 1020.3):  # each is made anew at once
    caught._note_time(second)
told["before"] = caught.before_last_s
"""
    )
    assert told == {
        "one failure": 112,
        "one that wrote none": None,
        "two failures": 4,
        "before": 1010.1,
    }


def test_without_a_dump_a_failure_stays_as_it_is() -> None:
    folder = DumpFolder()
    failure = failure_from_text(EXHAUSTED, EAGER)
    assert failure is not None
    assert folder.add_to(failure) == failure
    folder.open()
    assert folder.add_to(failure) == failure
    folder.close()
    folder.close()


def test_allocators_are_known_by_their_names() -> None:
    names = ["GPU_0_bfc", "GPU_12_bfc", "bfc_cpu_allocator_for_gpu", "gpu_host_bfc", "mklcpu"]
    assert [device_of(name) for name in names] == ["GPU:0", "GPU:12", "CPU:0", "", ""]


# ---- Helpers ------------------------------------------------------------------------------------


def facts(failure: Failure | None, asked: dict[str, Any]) -> dict[str, Any] | None:
    """Pick the fields that a test asks for."""
    return None if failure is None else {name: getattr(failure, name) for name in asked}


def raised_from(cause: Exception) -> Exception:
    error = ValueError("training failed")
    error.__cause__ = cause
    return error


def raised_while_handling(error: BaseException) -> BaseException:
    later = KeyError("model")
    later.__context__ = error
    return later


def raised_by(cell: str) -> BaseException:
    """Run a cell that fails, and give its error with its traceback."""
    try:
        exec(compile(cell, "<ipython-input-3-cell>", "exec"), {})  # noqa: S102 (a cell of ours)
    except MemoryError as error:
        return error
    raise AssertionError("The cell did not fail.")


def test_what_the_program_allows_its_gpus_is_read_from_tensorflow() -> None:
    told = run_after_import("""
import tensorflow as tf
from tensorflow.python.eager import context as tensorflow_s
from oommagic.tf.context import limits_set
told["before"] = len(list(limits_set()))
tf.config.list_physical_devices()
now = tensorflow_s.context()
cards = [tensorflow_s.PhysicalDevice(f"/physical_device:GPU:{n}", "GPU") for n in range(3)]
now._physical_devices += cards  # this machine has none
tf.config.set_visible_devices(cards, "GPU")
part = tf.config.LogicalDeviceConfiguration
tf.config.set_logical_device_configuration(cards[1], [part(512), part(1024)])
told["limits"] = [[each.device, each.card, each.bytes >> 20] for each in limits_set()]
""")
    assert told["before"] == 0
    assert told["limits"] == [["GPU:1", 1, 512], ["GPU:2", 1, 1024]]
