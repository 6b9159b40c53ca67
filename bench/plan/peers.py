"""What else says how much memory a training step takes.

`python -m bench.plan.peers MODEL OPTIMIZER JIT BATCH...` runs `ESTIMATES` in a process of its own
and prints their figures; null where one has none.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Estimate = Callable[[Any, Any, Sequence[int]], Iterator[int | None]]

_VALUE_BYTES = 4
_FEW = 2


def sum_of_layer_outputs(model: Any, _make_batch: Any, batches: Sequence[int]) -> Iterator[int]:
    """Count each layer's output once and each weight once, four bytes each: what people paste."""
    outputs, weights = _output_values(model), _size_of(model.weights)
    for batch in batches:
        yield _VALUE_BYTES * (batch * outputs + weights)


def _output_values(model: Any) -> int:
    return sum(
        _output_values(layer) if hasattr(layer, "layers") else _size_of(layer.output)
        for layer in model.layers
        if hasattr(layer, "layers") or hasattr(layer, "output")
    )


def _size_of(output: Any) -> int:
    parts = output if isinstance(output, list | tuple) else [output]
    return sum(math.prod(side for side in part.shape if side) for part in parts)


def grappler(model: Any, make_batch: Any, batches: Sequence[int]) -> Iterator[int | None]:
    """Ask TensorFlow's graph optimizer for the peak of the training step's graph.

    It knows nothing of what XLA compiles, loops count as one round, and it leaves out workspace
    and the allocator's rounding. Variables become handles of known shape, as in a saved model:
    with those that a function captures it cannot tell most shapes.
    """
    import tensorflow as tf
    from tensorflow.python.grappler import cluster, item

    if model.jit_compile:
        yield from (None for _ in batches)
        return
    model.fit(tf.data.Dataset.from_tensors(make_batch(_FEW)), verbose=0)  # makes slots
    for batch in batches:
        item_of_graph = item.Item(_step_graph(model, make_batch(batch)))
        with cluster.Provision() as machine:
            peaks = machine.DeterminePeakMemoryUsage(item_of_graph)
        yield max(peak for peak, _ in peaks.values())


def _step_graph(model: Any, data: Any) -> Any:
    """Trace the step for that batch alone; no function stands around it."""
    import tensorflow as tf
    from tensorflow.core.protobuf import meta_graph_pb2

    spec = tf.nest.map_structure(lambda array: tf.TensorSpec(array.shape, array.dtype), data)
    graph = tf.function(model.train_step).get_concrete_function(spec).graph
    described = meta_graph_pb2.MetaGraphDef(graph_def=graph.as_graph_def(add_shapes=True))
    _name_variables(graph, described.graph_def)
    wanted = [tensor.op.name for tensor in graph.outputs]
    wanted += [op.name for op in graph.control_outputs]
    described.collection_def["train_op"].node_list.value.extend(wanted)
    return described


def _name_variables(graph: Any, definition: Any) -> None:
    nodes = {node.name: node for node in definition.node}
    variables = {id(variable.handle): variable for variable in graph.variables}
    for captured, placeholder in graph.captures:
        variable = variables.get(id(captured))
        if variable is not None:
            node = nodes[placeholder.op.name]
            node.op = "VarHandleOp"
            node.ClearField("attr")
            node.attr["dtype"].type = variable.dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
            node.attr["shared_name"].s = node.name.encode()


ESTIMATES: Mapping[str, Estimate] = {
    "sum of layer outputs": sum_of_layer_outputs,
    "grappler": grappler,
}

LIVE = "live requests"
LINE_SIZES = 4, 16
LINE = "line through two peaks"
NAMES = (*ESTIMATES, LIVE, LINE)


def line(peaks: Mapping[int, int], batch: int) -> int | None:
    """Join the peaks that were measured at two small sizes; there it foretells nothing."""
    if batch in LINE_SIZES:
        return None
    (small, low), (large, high) = sorted(peaks.items())
    return round(low + (high - low) / (large - small) * (batch - small))


def main() -> None:
    """Let all of them answer."""
    from bench.plan.models import build

    name, optimizer, jit, *sizes = sys.argv[1:]
    model, make_batch = build(name, optimizer, jit=jit == "compiled")
    batches = [int(size) for size in sizes]
    said = {
        name: dict(zip(batches, estimate(model, make_batch, batches), strict=True))
        for name, estimate in ESTIMATES.items()
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
