"""Which names a piece of a source gives a value."""

import ast
from collections.abc import Iterator


def given_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that get a value by this node itself."""
    match node:
        case ast.Name(ctx=ast.Store()):
            yield node.id
        case ast.arg():
            yield node.arg
        case ast.alias():
            yield node.asname or node.name.partition(".")[0]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar() if node.name:
            yield node.name
        case ast.MatchMapping() if node.rest:
            yield node.rest
