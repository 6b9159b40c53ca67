"""Each rule of the advice: its cases, and that it can't do harm."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from oommagic.cell import parse_typed
from oommagic.explain.advice.engine import findings_of
from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import OUTPUTS_GROW
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.rules import RULES
from oommagic.explain.advice.rules.cache_to_file import CacheToFile
from oommagic.explain.advice.rules.list_keeps_tensors import ListKeepsTensors
from oommagic.explain.advice.rules.smaller_batch import SmallerBatch
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import Named
from oommagic.report import Edit

SPEAKS = [(rule, case) for rule in RULES for case in rule.speaks]
SILENT = [(rule, case) for rule in RULES for case in rule.is_silent]


def named(pairs: list[tuple[Rule, Case]]) -> list[str]:
    return [f"{rule.name}-{number}" for number, (rule, _) in enumerate(pairs)]


@pytest.mark.parametrize(("rule", "case"), SPEAKS, ids=named(SPEAKS))
def test_a_rule_speaks_up_in_its_cases_and_makes_the_code_that_it_says(
    rule: Rule, case: Case
) -> None:
    found = findings_of(TypedCell(case.source), case.here, [rule])
    assert found, "the rule kept silent"
    fix = found[0].fix
    assert (fix.source if fix else "") == case.becomes
    assert found[0].safety == ("hint" if fix is None else rule.safety)
    assert found[0].title
    assert found[0].message.endswith(".")


@pytest.mark.parametrize(("rule", "case"), SILENT, ids=named(SILENT))
def test_a_rule_keeps_silent_where_all_is_well(rule: Rule, case: Case) -> None:
    assert findings_of(TypedCell(case.source), case.here, [rule]) == ()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_has_cases_of_both_kinds_and_a_page(rule: Rule) -> None:
    assert rule.speaks
    assert rule.is_silent
    assert all((rule.title, rule.what, rule.why, rule.example, rule.instead, rule.fix_safety))
    assert parse_typed(rule.example).body
    assert parse_typed(rule.instead).body


def test_rules_have_names_of_their_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


class Appending(Rule):
    """A rule that writes a line below the cell."""

    name = title = what = why = example = instead = fix_safety = cost = "appending"
    safety = "same results"
    is_a_defect = True
    speaks = is_silent = ()

    def __init__(self, line: str) -> None:
        self.line = line

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        end = len(cell.text)
        yield Found("More.", "A line more.", here.place, edits=(Edit(end, end, self.line),))


@pytest.mark.parametrize("line", ["f = lambda x, x: x\n", "def f(x): nonlocal x\n", "x +\n"])
def test_a_change_that_python_can_not_run_is_not_offered(line: str) -> None:
    assert findings_of(TypedCell("x = 1\n"), STEP_OF_96, [Appending(line)]) == ()


@pytest.mark.parametrize("cell", ["x = 1\n", "await f()\n", "%%time\n!ls\n", "return\n"])
def test_a_change_that_python_can_run_is_offered(cell: str) -> None:
    (found,) = findings_of(TypedCell(cell), STEP_OF_96, [Appending("y = 2\n")])
    assert found.fix is not None


def test_an_optimizer_of_torch_is_left_alone() -> None:
    written = "torch.optim.Adam(net.parameters(), lr=0.1)"
    cell = f"optimizer = {written}\nmodel.fit(x, y, batch_size=128)\n"
    found = findings_of(TypedCell(cell), STEP_OF_96)
    changed = [one.fix.source for one in found if one.fix is not None]
    assert changed
    assert all(written in source for source in changed)


def test_a_size_that_has_to_divide_the_old_one_is_not_called_the_largest() -> None:
    cell = "keras.Input(batch_shape=(128, 8))\nmodel.fit(x, y, batch_size=128)\n"
    free, fixed = (
        findings_of(TypedCell(text), STEP_OF_96, [SmallerBatch()])[0].message
        for text in (cell.replace("batch_shape=(128, 8)", ""), cell)
    )
    assert "96 is the largest that is expected to fit" in free
    assert "64 is the largest divisor of it that is expected to fit" in fixed


def becomes(rule: Rule, cell: str, here: Situation) -> str:
    """Give the cell as the rule would have it; as it is, where that is a hint."""
    (found,) = findings_of(TypedCell(cell), here, [rule])
    return found.fix.source if found.fix is not None else cell


@pytest.mark.parametrize(
    "uses",
    [
        "for fold in range(5):\n    part = x[:n]\n",
        "for fold in range(5):\n    part = x[BATCH : 2 * BATCH]\n",
        "for step, x in enumerate(ds):\n    if step == n:\n        break\n",
        "x = x[x > n]\n",
        "x = x / BATCH\n",
        "def load(rows=BATCH):\n    return np.random.rand(rows, 8)\nx = load()\n",
        "def build():\n    return keras.layers.Dense(BATCH)\nmodel = build()\n",
    ],
)
def test_what_is_done_with_a_number_beside_batches_is_done_with_the_same_number(uses: str) -> None:
    name = "BATCH" if "BATCH" in uses else "n"
    cell = f"{name} = 128\n{uses}model.fit(x, y, batch_size={name})\n"
    assert f"{name} = 128" in becomes(SmallerBatch(), cell, STEP_OF_96)


def test_a_function_that_is_no_step_may_make_data_as_large_as_a_batch() -> None:
    load = "BATCH = 128\ndef load():\n    return np.random.rand(BATCH, 32)\n{}\n"
    fit = "model.fit(x, y, batch_size=BATCH)\n"
    once, each_time = (
        load.format(call) + fit for call in ("x = load()", "for x in ds:\n    step(load())")
    )
    assert becomes(SmallerBatch(), once, STEP_OF_96) == once
    assert "BATCH = 96" in becomes(SmallerBatch(), each_time, STEP_OF_96)


@pytest.mark.parametrize(
    "uses",
    [
        "steps = len(x) // BATCH\n",
        "steps = int(np.ceil(rows / BATCH))\n",
        "if x.shape[0] < BATCH:\n    raise ValueError\n",
        "for i in range(9):\n    step(x[i * BATCH : (i + 1) * BATCH])\n",
        "class Gan(keras.Model):\n    def train_step(self, x):\n        z = noise((BATCH, 8))\n",
        "@tf.function\ndef step(x):\n    z = noise((BATCH, 8))\n",
    ],
)
def test_what_follows_from_the_size_of_batches_follows_a_smaller_one(uses: str) -> None:
    cell = f"BATCH = 128\n{uses}model.fit(x, y, batch_size=BATCH)\n"
    assert becomes(SmallerBatch(), cell, STEP_OF_96) == cell.replace("128", "96")


_STACKED = "with tf.GradientTape() as tape:\n    for x in ds:\n        step(x)\n    tf.stack({})\n"


@pytest.mark.parametrize(
    "cell",
    [
        "def step(x):\n    outs.append(cell(x))\n" + _STACKED.format("outs"),
        "kept = outs\ndef step(x):\n    outs.append(cell(x))\n" + _STACKED.format("kept"),
        "def keep(x):\n    outs.append(cell(x))\ndef step(x):\n    keep(x)\n"
        + _STACKED.format("outs"),
        "def keep(x):\n    outs.append(cell(x))\nstep = tf.function(keep)\n"
        + _STACKED.format("outs"),
        "class Net:\n    def call(self, x):\n        outs.append(cell(x))\n"
        + _STACKED.format("outs"),
        "outs = kept = []\nfor x in ds:\n    outs.append(cell(x))\n" + _STACKED.format("kept"),
        "for x in ds:\n    outs.append(cell(x))\nlast = outs[-1]\nprint(last.numpy())\n",
    ],
)
def test_a_list_keeps_its_tensors_where_a_gradient_may_go_through_another_function_or_name(
    cell: str,
) -> None:
    assert becomes(ListKeepsTensors(), cell, OUTPUTS_GROW) == cell


@pytest.mark.parametrize(
    "cell",
    [
        "for x in ds:\n    outs.append((x, step(x)) if keep else step(x))\n",
        "for x in ds:\n    outs.append(keep and step(x) or 0.0)\n",
        "async def step(x):\n    return x, 1\nfor x in ds:\n    outs.append(await step(x))\n",
        "def step(x):\n    return (x, 1) if keep else x\nfor x in ds:\n    outs.append(step(x))\n",
        "for x in ds:\n    out = (out, x) if keep else x\n    outs.append(out)\n",
    ],
)
def test_what_may_be_several_things_is_not_asked_for_its_values(cell: str) -> None:
    assert becomes(ListKeepsTensors(), cell, OUTPUTS_GROW) == cell


def test_a_function_that_no_tape_s_block_calls_appends_values() -> None:
    cell = (
        "def step(x):\n    with tf.GradientTape() as tape:\n        loss = model(x)\n"
        "    return loss\n"
        "def train():\n    for x in ds:\n        outs.append(step(x))\n    return outs\ntrain()\n"
    )
    changed = becomes(ListKeepsTensors(), cell, OUTPUTS_GROW)
    assert changed == cell.replace("append(step(x))", "append(step(x).numpy())")


def test_a_function_with_its_own_tape_appends_values_where_the_list_is_read_outside() -> None:
    cell = (
        "def step(x):\n    with tf.GradientTape() as tape:\n        loss = model(x)\n"
        "        outs.append(loss)\nfor x in ds:\n    step(x)\nprint(sum(outs))\n"
    )
    changed = becomes(ListKeepsTensors(), cell, OUTPUTS_GROW)
    assert changed == cell.replace("append(loss)", "append(loss.numpy())")


_WITH_A_LIST = replace(
    CacheToFile.speaks[0].here,
    names={**CacheToFile.speaks[0].here.names, "parts": Named("list", count=2)},
)


@pytest.mark.parametrize(
    "uses",
    [
        "parts = [ds.take(9), ds.skip(9)]\nmodel.fit(parts[0], validation_data=parts[1])\n",
        (
            "class Told(keras.callbacks.Callback):\n    def on_batch_end(self, batch, logs=None):\n"
            "        self.model.evaluate(ds)\nmodel.fit(ds, callbacks=[Told()])\n"
        ),
        "def told():\n    return model.evaluate(ds)\nfor x in ds:\n    f(x, told())\n",
    ],
)
def test_a_cache_stays_in_memory_where_a_list_or_a_function_may_go_over_it_meanwhile(
    uses: str,
) -> None:
    cell = f"ds = ds.cache()\n{uses}"
    assert becomes(CacheToFile(), cell, _WITH_A_LIST) == cell


@pytest.mark.parametrize(
    "uses",
    [
        "def train(ds):\n    for x in ds:\n        step(x)\ntrain(ds)\n",
        "told = model.fit(ds)\nplt.plot(told.history['loss'], told.history['val_loss'])\n",
    ],
)
def test_a_cache_goes_into_a_file_where_a_function_has_its_own_name_or_a_fit_is_plotted(
    uses: str,
) -> None:
    cell = f"ds = ds.cache()\n{uses}"
    assert "mkdtemp" in becomes(CacheToFile(), cell, _WITH_A_LIST)
