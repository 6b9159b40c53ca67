"""Which of a cell's functions TensorFlow makes a graph of: `@tf.function`."""

import ast

from oommagic.explain.advice.nodes import dotted
from oommagic.explain.advice.typed import TypedCell


def is_in_graph(cell: TypedCell, node: ast.AST) -> bool:
    """Say whether a node stands in a tf.function, where what it does is traced once."""
    return any(
        graph_decorator(above) is not None
        for above in cell.around(node)
        if isinstance(above, ast.FunctionDef)
    )


def graph_decorator(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    """Give the decorator that makes a tf.function of it."""
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if dotted(called).rpartition(".")[2] == "function":
            return decorator
    return None
