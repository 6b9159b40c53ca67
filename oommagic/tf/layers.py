"""Reads the names that TensorFlow gives to ops: which layer, and which kind of memory.

Keras opens a layer's name scope twice in each graph, to build and to call, and TensorFlow numbers
the second: `conv2d` computes in `conv2d_1`, and `conv2d_1` in `conv2d_1_2`. So a part of a path
is a layer only if it ends in a number, and what stands before that number is the layer's name.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile

from oommagic.own_builtins import keep_builtins
from oommagic.recording import OpRole
from oommagic.report import HoldingKind

keep_builtins(globals())

# Up to the innermost function, loop body or branch: inside it a path starts at its root again.
_ENTERED = re.compile(
    r"^(?:.*/)?(?:(?:Stateful)?PartitionedCall(?:_\d+)?|(?:body|cond|then|else|branch\d*)/_\d+"
    r"|gradients|gradient_tape|ConstantFolding)/"
)
_NUMBER = re.compile(r"_\d+$")
_NUMBERS = re.compile(r"(?:_\d+)+$")
_TAKEN = re.compile(r".+_\d+_\d+")
_OF_GRADIENTS = re.compile(r"(?:^|/)(?:gradient_tape|gradients|while_grad)/")
_GRADIENT_OP = re.compile(r".*(?:Grad(?:ient)?|Backprop(?:Input|Filter)?)(?:V\d)?")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CONTROL = frozenset({"while", "cond", "case", "while_grad", "cond_grad", "loop_body", "pfor"})

_OPTIMIZERS = _words(
    "adam adam_w adamw sgd rm_sprop rmsprop adagrad adadelta adamax nadam ftrl lion lamb adafactor "
    "muon schedule_free_adam_w loss_scale_optimizer multi_optimizer"
)
_NOT_SAID = frozenset({"(null)"})  # how TensorFlow 2.16 says nothing
_FROM_ARRAYS = frozenset({"tf.constant", "convert_to_tensor", "_EagerConst"})
_COMPILED = "__inference_"  # what XLA compiled as one is one op, named by its function

_LOSS = re.compile(
    r"compile_loss|compile_metrics|(?:.*_)?(?:loss|accuracy|hinge)|(?:.*_)?cross_?entropy(?:_.*)?"
    r"|ms[el]e?|ma[ep]e?|msle|mean_(?:squared|absolute)_.*|huber|poisson|kl_divergence|logcosh"
    r"|log_cosh|cosine_similarity|circle|dice|tversky|ctc|auc|precision|recall|in_top_k"
)
_LOSS_OP = re.compile(r"(?:Sparse)?SoftmaxCrossEntropyWithLogits|InTopKV2|ArgMax|div_no_nan")
_DATA_OP = re.compile(
    r".*Dataset(?:V\d)?|.*Iterator.*|Optional[A-Z].*|Decode[A-Z].*|ReadFile|DatasetCardinality"
    r"|GatherV2|range|GetOptions"  # how `fit` takes its batches out of arrays
)

# What opens a scope inside a layer without being one: functions of TensorFlow and Keras, and ops
# whose gradients are computed in a scope of the op's name.
_FUNCTIONS = _words(
    "accumulator argmax batchnorm broadcast_to cast clip clip_by_global_norm clip_by_norm "
    "clip_by_value concat conv_transpose convolution depthwise div div_no_nan einsum exp "
    "expand_dims fill floordiv floormod gather gelu global_norm l2_normalize log log_softmax "
    "logistic_loss logsumexp map matmul max mean min mod moments mul neg norm normal normalize "
    "one_hot ones ones_like pad pivot_f pivot_t pow prod random_normal random_uniform range relu "
    "repeat reverse rsqrt scan select separable_conv2d sequence_mask shape sigmoid sign slice "
    "split sqrt square squeeze stack stateless_dropout stateless_random_normal "
    "stateless_random_uniform std strided_slice sub sufficient_statistics sum tanh tensordot tile "
    "top_k transpose truediv truncated_normal unstack update variance where zeros zeros_like"
)
_OPS = _words(
    "Abs Add AddN AddV2 ArgMax AvgPool AvgPool2d AvgPool3D BatchMatMulV2 BiasAdd BroadcastTo Cast "
    "ClipByValue ConcatV2 Const Conv1D Conv2D Conv2DBackpropInput Conv3D Cumsum "
    "DepthwiseConv2dNative Einsum Elu Equal Erf Exp ExpandDims Fill Floor FloorMod "
    "FusedBatchNormV3 GatherNd GatherV2 Gelu Greater GreaterEqual Identity LeakyRelu Less Log "
    "Log1p LogSoftmax MatMul Max MaxPool MaxPool2d MaxPool3D Maximum Mean Min Minimum Mul Neg "
    "NotEqual OneHot Pack Pad PadV2 Placeholder Pow Prod ReadVariableOp RealDiv Reciprocal Relu "
    "Relu6 Repeat Reshape ResizeBilinear ResizeNearestNeighbor ResourceGather ReverseV2 Rsqrt "
    "Select SelectV2 Selu Shape Sigmoid Sign Silu Slice Softmax Softplus Softsign Split Sqrt "
    "Square SquaredDifference Squeeze StridedSlice Sub Sum Tanh Tensordot Tile TopKV2 Transpose "
    "UnsortedSegmentSum Unpack ZerosLike"
)
_LISTS = ("TensorList", "TensorArray")
_LAYERS_LIKE_OPS = frozenset({"add", "maximum", "minimum", "softmax"})

# These take from the allocator as if for scratch what they then give away.
_GIVES_ITS_SCRATCH = re.compile(
    r"Einsum|TensorList.*|zeros_like|ZerosLike|AddN|Sum|Mean|Max|Min|Prod|sum|mean|variance"
    r"|depthwise"
)
_FOLLOWS = re.compile(r"zeros_like|ones_like|ZerosLike|OnesLike|AddN")
_VARIABLE_OPS = frozenset(
    {"VarHandleOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"}
)


def role_of(op: str, *, is_temporary: bool = False) -> OpRole:
    """Tell from an op's name what kind of memory it takes, and for which layer.

    A layer is its path inside the outermost model. What works for a loss or an optimizer has that
    one's name. XLA's buffers have no op, nor do arrays that become tensors: for these the event
    around them, `tf.constant` or `convert_to_tensor`, can stand. What is temporary is wanted by
    the op for itself alone.
    """
    parts = _parts(op)
    if not parts or parts[0] in _NOT_SAID or parts[-1].startswith(_COMPILED):
        return OpRole("unknown")
    if parts[0] in _FROM_ARRAYS or _DATA_OP.fullmatch(_plain(parts[0])):
        return OpRole("data")
    if "Initializer" in parts:
        return _initial_value(parts[: parts.index("Initializer")])
    if _is_optimizer(parts[0]):
        return _of_optimizer(_plain(parts[0]), _plain(parts[-1]))
    is_gradient = _OF_GRADIENTS.search(op) is not None
    losses = list(takewhile(_is_loss, map(_plain, parts)))
    layer = losses[-1] if losses else _layer(parts, is_gradient=is_gradient)
    if is_temporary and not _GIVES_ITS_SCRATCH.fullmatch(_plain(parts[-1])):
        kind = _of_scratch(_plain(parts[-1]))
    elif is_gradient or _GRADIENT_OP.fullmatch(_plain(parts[-1])):
        kind = "gradients"
    elif losses or _LOSS_OP.fullmatch(_plain(parts[-1])):
        kind = "loss and metrics"
    else:
        kind = "activations"
    return OpRole(kind, layer)


def in_order(ops: Sequence[str], roles: Sequence[OpRole], order: Iterable[int]) -> list[OpRole]:
    """Give ops that name no layer the one of the op that ran before them, where that is sure.

    Where a loop's gradient begins, its zeros come right after its own first op. `order` has the
    number of each op that allocated, as often as it did.
    """
    placed = list(roles)
    before = ""
    for number in order:
        role = placed[number]
        if role.layer:
            before = role.layer
        elif _FOLLOWS.fullmatch(_plain(ops[number].rpartition("/")[2])):
            placed[number] = OpRole("gradients", before)
    return placed


def _parts(op: str) -> list[str]:
    """Split a name from its root on, without loops, branches and what a loop repeats."""
    parts = [part for part in _ENTERED.sub("", op).split("/") if part]
    parts = [part for part in parts if _plain(part) not in _CONTROL]
    again = max((place for place, part in enumerate(parts) if part == parts[0]), default=0)
    return parts[again:]


def _plain(part: str) -> str:
    """Take away the numbers that tell ops of one name apart."""
    return _NUMBERS.sub("", part)


def _layer(parts: Sequence[str], *, is_gradient: bool) -> str:
    """Join the parts that are layers, which stand in a row; the last part is the op."""
    scopes = parts[:-1]
    if is_gradient and scopes and _plain(scopes[-1]) in _LAYERS_LIKE_OPS:
        scopes = scopes[:-1]  # the scope of that op's gradient
    layers = [_NUMBER.sub("", part) for part in takewhile(_is_layer, scopes)]
    return "/".join(layers[1:] or layers)


def _is_layer(part: str) -> bool:
    name, numbers = _NUMBER.subn("", part)
    is_op = name in _OPS or name in _FUNCTIONS or name.startswith(_LISTS)
    return numbers > 0 and not is_op


def _is_loss(name: str) -> bool:
    return name not in _FUNCTIONS and _LOSS.fullmatch(name) is not None


def _is_optimizer(part: str) -> bool:
    return _plain(part).lower() in _OPTIMIZERS


def _initial_value(variable: Sequence[str]) -> OpRole:
    """Tell what is made when variables are: weights, or an optimizer's slots."""
    if variable and _is_optimizer(variable[0]):
        return OpRole("optimizer slots", _plain(variable[0]))
    if variable and _LOSS.fullmatch(_plain(variable[0])):
        return OpRole("loss and metrics", _plain(variable[0]))
    # Here scopes are the first of their name: numbered only if that very name was taken.
    layers = [_NUMBER.sub("", part) if _TAKEN.fullmatch(part) else part for part in variable[:-1]]
    return OpRole("weights", "/".join(layers[1:] or layers))


def _of_optimizer(optimizer: str, op: str) -> OpRole:
    """Tell an optimizer's scratch memory from the buffer that an assignment gives a variable.

    While somebody else still reads the old buffer, the new value gets a new one: `assign_sub` is
    how Keras's optimizers change weights (SGD: `assign_add`), `assign_add` how they change slots.
    """
    if op == "AssignSubVariableOp" or (op == "AssignAddVariableOp" and optimizer.lower() == "sgd"):
        return OpRole("weights")
    if op == "AssignAddVariableOp":
        return OpRole("optimizer slots", optimizer)
    return OpRole("workspace", optimizer)


def _of_scratch(op: str) -> HoldingKind:
    """Tell scratch memory from variables, which take their buffers the same way."""
    return "variables" if op in _VARIABLE_OPS else "workspace"
