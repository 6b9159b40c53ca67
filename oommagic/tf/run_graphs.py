"""Which op of a step needs which others, by the graphs that TensorFlow really runs.

It rewrites a function's graph before its first run: ops are put together, left out, and given the
names that they have on a tape. TensorFlow hands such graphs out when it is told to collect them.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from oommagic.tf.undoing import Undoing

_TRACING = "tensorflow.python.ops.summary_ops_v2"

Needs = dict[str, frozenset[str]]
"""For each op, those that have to be over before it begins."""


@contextmanager
def collected() -> Iterator[Needs]:
    """Within `with`, notice functions that run for the first time; at its end, what needs what.

    Nothing is told where the user's own `tf.summary.trace_on` collects graphs: there is only one
    such collection.
    """
    from tensorflow.python.eager import context

    needs: Needs = {}
    if getattr(sys.modules.get(_TRACING), "_current_trace_context", None) is not None:
        yield needs
        return
    now = context.context()
    with Undoing(now.disable_graph_collection):
        now.enable_graph_collection()
        yield needs
        needs.update(_needs(now.export_run_metadata()))


def _needs(collected: Any) -> Mapping[str, frozenset[str]]:
    needs: defaultdict[str, set[str]] = defaultdict(set)
    for function in collected.function_graphs:
        for part in function.partition_graphs:
            for node in part.node:
                needs[node.name].update(map(_op, node.input))
    return {op: frozenset(needed) for op, needed in needs.items()}


def _op(given: str) -> str:
    """Give the op of an input, as in `op`, `op:1`, and `^op` for one that only goes before."""
    return given.removeprefix("^").partition(":")[0]
