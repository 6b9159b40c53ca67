"""From the names of ops to layers and kinds: names that TensorFlow wrote, and real tapes."""

from typing import Any

import pytest
from allocation_events import ALLOCATION_EVENTS
from children import ARENA, run_after_import
from hypothesis import given
from hypothesis import strategies as st

from oommagic.recording import OpRole
from oommagic.tf.layers import in_order, role_of

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.both_ends]

CALL = "StatefulPartitionedCall/"
LOOP = "while/body/_1/while/cond/then/_191/while/cond/StatefulPartitionedCall/"
LSTM = "sequential_1/lstm_1/while/body/_50/sequential_1/lstm_1/while/"
LSTM_S_GRADIENT = (
    "gradient_tape/sequential_1/lstm_1/while/sequential_1/lstm_1/while_grad/body/_574/"
    "gradient_tape/sequential_1/lstm_1/while/gradients/sequential_1/lstm_1/while/"
)


@pytest.mark.parametrize(
    ("op", "layer"),
    [
        ("resnet50_1/conv2_block1_0_conv_1/BiasAdd", "conv2_block1_0_conv"),
        (CALL + "sequential_1/conv2d_1/Relu", "conv2d"),
        (CALL + "sequential_1/conv2d_1_2/BiasAdd", "conv2d_1"),
        (CALL + "mobilenetv2_1.00_96_1/Conv_1_bn_1/batchnorm/mul_1", "Conv_1_bn"),
        (CALL + "mobilenetv2_1.00_96_1/bn_Conv1_1/moments/SquaredDifference", "bn_Conv1"),
        (CALL + "net_1/encoder_1/conv2d_1/Relu", "encoder/conv2d"),
        (CALL + "net_1/block_1_2/conv2d_3_1/convolution", "block_1/conv2d_3"),
        (CALL + "net_1/block_1/Relu_1", "block"),
        (CALL + "functional_1/multi_head_attention_1/query_1/MatMul", "multi_head_attention/query"),
        (CALL + "functional_1/multi_head_attention_1_2/einsum_1/Einsum", "multi_head_attention_1"),
        (CALL + "functional_1/dense_4_1/Tensordot/MatMul", "dense_4"),
        (CALL + "sequential_1/dropout_1/stateless_dropout/Mul", "dropout"),
        (CALL + "functional_1/up_sampling2d_1/Repeat_1/Tile", "up_sampling2d"),
        (CALL + LSTM + "lstm_cell_1/split", "lstm/lstm_cell"),
        (CALL + LSTM + "TensorListPushBack_1", "lstm"),
        (LOOP + "sequential_1/conv2d_1/Relu", "conv2d"),
        ("discriminator_3/leaky_re_lu_1_1/LeakyRelu", "leaky_re_lu_1"),
        ("dense_1/MatMul", "dense"),
        ("net_1/Mean", "net"),
        ("matmul_1", ""),
    ],
)
def test_what_the_forward_pass_leaves_are_a_layer_s_activations(op: str, layer: str) -> None:
    assert role_of(op, is_temporary=False) == OpRole("activations", layer)


@pytest.mark.parametrize(
    ("op", "layer"),
    [
        (CALL + "gradient_tape/sequential_1/dense_1/MatMul/MatMul", "dense"),
        (CALL + "gradient_tape/resnet50_1/conv2_block3_3_bn_1/batchnorm/mul_1/Mul",
         "conv2_block3_3_bn"),
        (CALL + "gradient_tape/resnet50_1/conv3_block1_2_bn_1/batchnorm/add_1/Sum",
         "conv3_block1_2_bn"),
        (CALL + "gradient_tape/functional_1/layer_normalization_3_1/moments/Tile_1",
         "layer_normalization_3"),
        ("gradient_tape/generator_1/conv2d_transpose_1_2/conv_transpose/Conv2DBackpropFilter",
         "conv2d_transpose_1"),
        (CALL + LSTM_S_GRADIENT + "lstm_cell_1/MatMul_1_grad/MatMul", "lstm/lstm_cell"),
        (CALL + "gradient_tape/compile_loss/sparse_categorical_crossentropy/Cast/mul",
         "sparse_categorical_crossentropy"),
        ("ConstantFolding/" + CALL + "gradient_tape/net_1/global_average_pooling2d_1/truediv_recip",
         "global_average_pooling2d"),
        ("gradient_tape/matmul_1/MatMul", ""),
        ("ReluGrad", ""),
        ("Conv2DBackpropInput", ""),
    ],
)  # fmt: skip
def test_the_backward_pass_makes_gradients(op: str, layer: str) -> None:
    assert role_of(op, is_temporary=False) == OpRole("gradients", layer)


@pytest.mark.parametrize(
    ("op", "is_temporary", "role"),
    [
        (CALL + "gradient_tape/sequential_1/conv2d_1/convolution/Conv2DBackpropFilter", True,
         OpRole("workspace", "conv2d")),
        (CALL + "functional_1/multi_head_attention_1/einsum/Einsum", True,
         OpRole("activations", "multi_head_attention")),
        ("adam/sequential_dense_kernel_momentum/Initializer/zeros", False,
         OpRole("optimizer slots", "adam")),
        (CALL + "adam/AssignAddVariableOp_13", True, OpRole("optimizer slots", "adam")),
        (CALL + "adam/AssignSubVariableOp_6", True, OpRole("weights")),
        (CALL + "sgd/AssignAddVariableOp_2", True, OpRole("weights")),
        (CALL + "cond/then/_46/cond/adam/Square_3", False, OpRole("workspace", "adam")),
        ("adam_1/Sqrt_192", False, OpRole("workspace", "adam")),
        (CALL + "compile_loss/sparse_categorical_crossentropy/SparseSoftmaxCrossEntropyWithLogits/"
         "SparseSoftmaxCrossEntropyWithLogits", False,
         OpRole("loss and metrics", "sparse_categorical_crossentropy")),
        ("binary_crossentropy_2/logistic_loss/Select", False,
         OpRole("loss and metrics", "binary_crossentropy")),
        ("sequential/dense/kernel/Initializer/stateless_random_uniform", False,
         OpRole("weights", "dense")),
        ("sequential/dense_1_1/kernel/Initializer/Cast", False, OpRole("weights", "dense_1")),
        ("VarHandleOp", True, OpRole("variables")),
        ("GatherV2", False, OpRole("data")),
        ("IteratorGetNext", False, OpRole("data")),
        ("while/cond_1/then/_234/while/cond_1/IteratorGetNextAsOptional", False, OpRole("data")),
        ("tf.constant", False, OpRole("data")),
        ("", False, OpRole("unknown")),
        ("(null)", False, OpRole("unknown")),
    ],
)  # fmt: skip
def test_other_memory_has_its_own_kind(op: str, is_temporary: bool, role: OpRole) -> None:  # noqa: FBT001
    assert role_of(op, is_temporary=is_temporary) == role


def test_a_layer_is_its_path_inside_the_outermost_model() -> None:
    assert role_of("discriminator_1/conv2d_1/BiasAdd", is_temporary=False).layer == "conv2d"


def test_zeros_at_the_start_of_a_loop_s_gradient_go_to_its_layer() -> None:
    ops = [LSTM_S_GRADIENT + "TensorArrayV2Read/TensorListGetItem_grad/TensorListReserve",
           CALL + "zeros_like_2", CALL + "matmul"]  # fmt: skip
    roles = in_order(ops, [role_of(op, is_temporary=True) for op in ops], [0, 1, 1, 2])
    assert roles[1] == OpRole("gradients", "lstm")
    assert roles[2].layer == ""


PARTS = st.sampled_from(
    ["gradient_tape", "adam", "dense_1", "while", "body", "_5", "", "MatMul", "_1", "_",
     "Initializer",
     "compile_loss", "x y", "StatefulPartitionedCall", "é_1"]
)  # fmt: skip


@given(
    op=st.one_of(st.text(), st.lists(PARTS).map("/".join)),
    is_temporary=st.booleans(),
)
def test_every_text_has_a_role(op: str, is_temporary: bool) -> None:  # noqa: FBT001
    role = role_of(op, is_temporary=is_temporary)
    assert role.kind
    assert len(role.layer) <= len(op)


MODELS = """
import sys
from oommagic.tf.inventory import held_by
from oommagic.tf.layers import in_order, role_of
from oommagic.tf.walk import layers_in

def sequential():
    return keras.Sequential([
        layers.Input((32, 32, 3)), layers.Conv2D(16, 3, activation="relu"),
        layers.BatchNormalization(), layers.Conv2D(32, 3), layers.ReLU(), layers.Flatten(),
        layers.Dense(10, "softmax")])

def recurrent():
    return keras.Sequential([
        layers.Input((32,)), layers.Embedding(2000, 32),
        layers.Bidirectional(layers.LSTM(32, return_sequences=True)), layers.GRU(32),
        layers.Dense(10, "softmax")])

def transformer():
    inputs = layers.Input((32,), dtype="int32")
    x = layers.Embedding(500, 64)(inputs)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(256, "relu")(x)))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(10, "softmax")(x))

def nested():
    encoder = keras.Sequential(
        [layers.Input((32, 32, 3)), layers.Conv2D(8, 3), layers.Conv2D(8, 3)], name="encoder")
    inputs = layers.Input((32, 32, 3))
    x = layers.Flatten()(layers.Conv2D(8, 3)(encoder(inputs)))
    return keras.Model(inputs, layers.Dense(10, "softmax")(x))

def peak(events):
    '''Give what is there when the allocator's figure is largest.'''
    figures = [s["bytes_allocated"] if a else 0 for a, s in events]
    return living(events[: figures.index(max(figures)) + 1])

for make in (sequential, recurrent, transformer, nested):
    model = make()
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    shape = model.input_shape[1:]
    x, y = np.ones((128, *shape), "float32"), np.ones(128)
    model.train_on_batch(x[:64], y[:64])
    names = {"model": model}
    events = allocations(lambda: model.train_on_batch(x, y))
    keys = {}
    order = []
    for is_allocation, stats in events:
        if is_allocation:
            key = (stats.get("tf_op", ""), stats.get("region_type") == "temp")
            order.append(keys.setdefault(key, len(keys)))
    roles = [role_of(op, is_temporary=is_temporary) for op, is_temporary in keys]
    roles = in_order([op for op, _ in keys], roles, order)
    held = {one.address for one in held_by(names)}
    total = named = 0
    there = {path for path, _ in layers_in(model)}
    strangers = set()
    for address, stats in peak(events).items():
        role = roles[keys[stats.get("tf_op", ""), stats.get("region_type") == "temp"]]
        total += stats["allocation_bytes"]
        is_named = role.layer or role.kind == "data" or address in held
        named += stats["allocation_bytes"] * bool(is_named)
        if role.kind in ("activations", "gradients") and role.layer and role.layer not in there:
            strangers.add(role.layer)
    told[make.__name__] = [named / total, sorted(strangers)]
"""


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    return run_after_import(ALLOCATION_EVENTS + MODELS, ARENA)


@pytest.mark.parametrize("model", ["sequential", "recurrent", "transformer", "nested"])
def test_nearly_all_bytes_at_a_step_s_peak_have_a_layer(
    trained: dict[str, Any], model: str
) -> None:
    share, _ = trained[model]
    assert share >= 0.95


@pytest.mark.parametrize("model", ["sequential", "recurrent", "transformer", "nested"])
def test_layers_are_called_as_in_the_inventory(trained: dict[str, Any], model: str) -> None:
    _, strangers = trained[model]
    assert [name for name in strangers if "crossentropy" not in name] == []
