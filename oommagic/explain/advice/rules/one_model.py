"""One model for all turns of a loop, set back to where it began."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from textwrap import dedent

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import MODELS_GROW
from oommagic.explain.advice.model_state import ModelState, state_of
from oommagic.explain.advice.nodes import dotted, free_names, root_name
from oommagic.explain.advice.rule import Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.explain.growth import Growth
from oommagic.report import Edit
from oommagic.units import format_bytes

_FEWEST_TURNS = 3
_USED_ONLY_BY = ("fit", "evaluate", "predict", "summary", "save", "save_weights")
_NOT_COMPILED = ("Sequential", "Model", "clone_model")


class OneModel(Rule):
    """A model that is built once, and gets its first weights back for each turn."""

    name = "one-model"
    title = "One model, not one each turn"
    what = (
        "Where a loop builds a model each time and memory grows, it builds it above the loop, and "
        "puts weights and the optimizer's state back to where they were at each turn. Where the "
        "model depends on the turn, or is kept, it is a hint."
    )
    why = (
        "A model that a Keras optimizer has trained in a graph stays on the device until the "
        "process ends: TensorFlow keeps the step's graph, and that keeps the weights and slots. "
        "Neither `del model` nor `gc.collect()` nor `keras.backend.clear_session()` gives them "
        "back (TensorFlow 2.20 and 2.21). A new process does: one for each model."
    )
    example = "for fold in folds:\n    model = build()\n    model.fit(*fold)"
    instead = (
        "model = build()\nstart = model.get_weights()\nfor fold in folds:\n"
        "    model.set_weights(start)\n    model.fit(*fold)"
    )
    safety = "changes results"
    fix_safety = (
        "Each turn begins at the same weights, where they were drawn anew; all else is the same."
    )
    cost = ""
    causes = frozenset({"growth", "left behind"})
    is_a_defect = True
    speaks = (
        Case(
            "scores = []\nfor fold in range(5):\n    keras.backend.clear_session()\n"
            "    model = build()  # as in the paper\n    model.fit(x, y)\n"
            "    scores.append(model.evaluate(x, y))\n",
            MODELS_GROW,
            "scores = []\nmodel = build()\n"
            "if not model.optimizer.built:\n"
            "    model.optimizer.build(model.trainable_variables)\n"
            "first_weights = model.get_weights()\n"
            "first_state = [variable.numpy() for variable in model.optimizer.variables]\n"
            "for fold in range(5):\n    keras.backend.clear_session()\n"
            "    model.set_weights(first_weights)\n"
            "    for variable, value in zip(model.optimizer.variables, first_state):\n"
            "        variable.assign(value)  # as in the paper\n    model.fit(x, y)\n"
            "    scores.append(model.evaluate(x, y))\n",
        ),
        Case(
            "for fold in range(5):\n    model = build(units=fold)\n    model.fit(x, y)\n",
            MODELS_GROW,
        ),
        Case(
            "for fold in range(5):\n    model = build()\n    model.fit(x, y)\n"
            "    models.append(model)\n",
            MODELS_GROW,
        ),
        Case(
            "for rate in rates:\n    config['rate'] = rate\n    model = build(config)\n"
            "    model.fit(x, y)\n",
            MODELS_GROW,
        ),
        Case(
            "for rate in rates:\n    config.update(rate=rate)\n    model = build(config)\n"
            "    model.fit(x, y)\n",
            MODELS_GROW,
        ),
        Case(
            "def build():\n    return compiled(Dense(units))\n"
            "for units in (8, 16):\n    model = build()\n    model.fit(x, y)\n",
            MODELS_GROW,
        ),
        Case(
            "build = lambda: compiled(Dense(units))\n"
            "for units in (8, 16):\n    model = build()\n    model.fit(x, y)\n",
            MODELS_GROW,
        ),
        Case(
            "def make():\n    return compiled(Dense(units))\nbuild = make\n"
            "for units in (8, 16):\n    model = build()\n    model.fit(x, y)\n",
            MODELS_GROW,
        ),
        Case(
            "class Net(keras.Model):\n    def __init__(self):\n        super().__init__()\n"
            "        self.out = Dense(units)\n        self.compile('adam')\n"
            "for units in (8, 16):\n    model = Net()\n    model.fit(x, y)\n",
            MODELS_GROW,
        ),
        Case(
            "build = functools.partial(make, config)\nfor units in (8, 16):\n"
            "    config['units'] = units\n    model = build()\n    model.fit(x, y)\n",
            MODELS_GROW,
        ),
        Case(
            "for units in (8, 16):\n    model = build()\n    model.fit(x, y)\n",
            replace(MODELS_GROW, names_in_functions=frozenset({"units"})),
        ),
        Case(
            "build = functools.partial(make, 3)\n"
            "for units in (8, 16):\n    model = build()\n    model.fit(x, y)\n",
            replace(MODELS_GROW, names_in_functions=frozenset({"units"})),
        ),
        Case(
            "def build():\n    model = compiled()\n    return model\n"
            "for fold in range(5):\n    model = build()\n    model.fit(x, y)\n",
            MODELS_GROW,
            "def build():\n    model = compiled()\n    return model\n"
            "model = build()\n"
            "if not model.optimizer.built:\n"
            "    model.optimizer.build(model.trainable_variables)\n"
            "first_weights = model.get_weights()\n"
            "first_state = [variable.numpy() for variable in model.optimizer.variables]\n"
            "for fold in range(5):\n"
            "    model.set_weights(first_weights)\n"
            "    for variable, value in zip(model.optimizer.variables, first_state):\n"
            "        variable.assign(value)\n    model.fit(x, y)\n",
        ),
    )
    is_silent = (
        Case("for fold in range(5):\n    model = build()\n    model.fit(x, y)\n", STEP_OF_96),
        Case("model = build()\nfor fold in range(5):\n    model.fit(x, y)\n", MODELS_GROW),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the model that a loop builds, where models were seen to pile up."""
        for call in cell.calls_of("fit"):
            loop, name = cell.loop_of(call), _called_on(call)
            made = [] if loop is None else [_made(one, name) for one in loop.body]
            builds = [one for one in made if one is not None]
            if isinstance(loop, ast.For) and len(builds) == 1:
                grown = here.growth_of("models") or _left_by(loop, builds[0], name, here)
                if grown is not None:
                    yield _found(cell, here, grown, (loop, builds[0]), name)
                return


def _left_by(loop: ast.For, build: ast.Assign, name: str, here: Situation) -> Growth | None:
    """Add up what the loop's lines left on the device, if it is as much as that many models."""
    lines = [one for one in here.lines if loop.lineno < one.line_number <= (loop.end_lineno or 0)]
    turns = max((one.hits for one in lines if one.line_number == build.lineno), default=0)
    left = sum(one.devices[here.device].delta_bytes for one in lines if here.device in one.devices)
    known = here.names.get(name)
    model = known.model.weight_bytes if known is not None and known.model is not None else 0
    if turns < _FEWEST_TURNS or not model or left < model * (turns - 1):
        return None
    return Growth(here.device, "iteration", turns, left, what="models")


def _found(
    cell: TypedCell, here: Situation, grown: Growth, where: tuple[ast.For, ast.Assign], name: str
) -> Found:
    loop, build = where
    saved = grown.total_bytes - grown.rate_bytes
    return Found(
        title=f"Build `{name}` once, above the loop",
        message=(
            f"Each turn leaves {format_bytes(grown.rate_bytes)} on {grown.place}: a model that was "
            "trained stays there until the process ends, and neither `del` nor `clear_session` "
            "gives it back. Build it once and set its weights back, or train each in a process of "
            "its own."
        ),
        place=grown.place,
        saving=expected(grown.place, saved),
        edits=_built_once(cell, loop, build, state_of(name, cell, here))
        if _can_be_shared(cell, here, loop, build, name)
        else (),
        line_number=build.lineno,
    )


def _called_on(call: ast.Call) -> str:
    return dotted(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _made(statement: ast.stmt, name: str) -> ast.Assign | None:
    """Give the statement if it builds the model."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    is_it = isinstance(target, ast.Name) and target.id == name
    return statement if is_it and isinstance(statement.value, ast.Call) else None


def _can_be_shared(
    cell: TypedCell, here: Situation, loop: ast.For, build: ast.Assign, name: str
) -> bool:
    """Say whether each turn would build the same, compiled, and nothing keeps the model."""
    is_alone = not cell.text[cell.offset(build.lineno, 0) : cell.start(build)].strip()
    return (
        is_alone
        and not _depends_on_turn(cell, here, loop, build)
        and _is_compiled_by_its_maker(build)
        and all(_is_a_use(cell, node) for node in cell.nodes if _is_name(cell, node, name))
    )


def _depends_on_turn(cell: TypedCell, here: Situation, loop: ast.For, build: ast.Assign) -> bool:
    """Say whether what builds the model may use what the loop changes."""
    needs, changing = cell.names_reached(build.value), set(_changing(here, loop))
    is_made_here = all(cell.assignments(name) or not _may_run(here, name) for name in needs)
    elsewhere = frozenset() if is_made_here else here.names_in_functions
    return not changing.isdisjoint(needs | elsewhere)


def _may_run(here: Situation, name: str) -> bool:
    """Say whether a name may stand for a function or a class of another cell."""
    return name not in here.names or here.names[name].kind == "other"


def _changing(here: Situation, loop: ast.For) -> Iterator[str]:
    """Yield the names to which a loop gives a value, or into whose value it writes."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Name | ast.Subscript | ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                yield root_name(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            # A method whose result nobody takes is called for what it changes.
            changed = root_name(node.value.func)
            if isinstance(node.value.func, ast.Attribute) and not _is_module(here, changed):
                yield changed


def _is_module(here: Situation, name: str) -> bool:
    return name in here.names and here.names[name].kind == "module"


def _is_compiled_by_its_maker(build: ast.Assign) -> bool:
    """Say whether a function made it: one that compiles it, as the loop does not."""
    called = dotted(build.value.func) if isinstance(build.value, ast.Call) else ""
    return called.rpartition(".")[2] not in _NOT_COMPILED


def _is_name(cell: TypedCell, node: ast.AST, name: str) -> bool:
    """Say whether a name is used there; in a function it may be another of its own."""
    if not isinstance(node, ast.Name) or node.id != name or isinstance(node.ctx, ast.Store):
        return False
    function = cell.function_of(node)
    return function is None or name in free_names(function)


def _is_a_use(cell: TypedCell, node: ast.AST) -> bool:
    """Say whether one of the model's methods is called that leaves it as it is."""
    above = cell.parents.get(node)
    if isinstance(above, ast.Delete):
        return False
    return isinstance(above, ast.Attribute) and above.attr in _USED_ONLY_BY


def _built_once(
    cell: TypedCell, loop: ast.For, build: ast.Assign, kept: ModelState
) -> tuple[Edit, ...]:
    margin = cell.margin(build.lineno)
    code = dedent(margin + cell.text_of(build))
    return (
        cell.insert_before(loop, f"{code}\n{kept.kept}"),
        cell.replace(build, kept.put_back.replace("\n", f"\n{margin}")),
    )
