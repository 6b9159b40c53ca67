"""What the notebook's names hold of a device's memory: found without touching it."""

import sys
from collections import deque
from typing import Any, NoReturn

import pytest
from allocation_events import ALLOCATION_EVENTS
from children import ARENA, run_after_import
from hypothesis import given
from hypothesis import strategies as st

from oommagic.diagnosis import _names_reached
from oommagic.tf.inventory import held_by
from oommagic.tf.looking import (
    MOST_ITEMS,
    attributes_of,
    closure_of,
    family_of,
    functions_of,
    items_of,
)

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.both_ends]

BEGINNING = (
    ALLOCATION_EVENTS
    + """
import gc, time
from tensorflow.config.experimental import get_memory_info, reset_memory_stats
from oommagic.tf.inventory import held_by
from oommagic.tf.walk import layers_in

def owners(held):
    return sorted({(one.owner, one.kind) for one in held})

names = {}
"""
)

NOTEBOOK = (
    BEGINNING
    + """
tf.zeros(1)

def fill():
    model = keras.Sequential([
        layers.Input((16,)), layers.Embedding(5000, 128), layers.LSTM(128), layers.Dropout(0.1),
        layers.Dense(2048), layers.BatchNormalization(), layers.Dense(512)])
    model.compile("rmsprop", keras.losses.SparseCategoricalCrossentropy(True), metrics=["accuracy"])
    model.fit(np.ones((64, 16)), np.ones(64), batch_size=32, verbose=0)
    names.update(
        model=model, table=tf.Variable(tf.zeros((500, 1000))),
        batches=[tf.random.normal((64, 1000)) for _ in range(3)],
        by_name={"x": tf.ones((2000, 300)), "flags": tf.fill((50000,), True)},
        data=tf.data.Dataset.from_tensors(tf.ones((1000, 500))).shuffle(9).batch(5),
    )

live = living(allocations(fill))
gc.collect()
reset_memory_stats("CPU:0")
before = get_memory_info("CPU:0")
held = held_by(names)
told["before_and_after"] = [before, get_memory_info("CPU:0")]
told["owners"] = owners(held)
there = {one.address: one for one in held if one.address in live}
told["misplaced"] = [
    [one.owner, one.bytes] for one in held if one.address not in live and one.bytes > 8]
told["wrong_sizes"] = [
    [one.owner, one.bytes] for address, one in there.items()
    if one.bytes != live[address]["requested_bytes"]]
told["held_chunks"] = sum(live[address]["allocation_bytes"] for address in there)
told["in_use"] = before["current"]
told["largest_unheld"] = max(s["allocation_bytes"] for a, s in live.items() if a not in there)
told["addresses"] = [len({one.address for one in held}), len(held)]
told["layers"] = sorted(path for path, _ in layers_in(names["model"]))
told["weights_of"] = sorted({one.layer for one in held if one.kind == "weights"})
told["slots_of"] = sorted({one.layer for one in held if one.kind == "optimizer slots"} - {""})

held = there = None
weights = sum(w.value.numpy().nbytes for w in names["model"].weights)
kept = names.pop("model")
names.clear()
unnamed = held_by({}, include_unnamed=True)
told["unnamed_weights"] = sum(one.bytes for one in unnamed if one.kind == "weights")
told["weights"] = weights
told["with_an_owner"] = sorted({one.owner for one in unnamed})
unnamed = None
del kept
gc.collect()
keras.backend.clear_session()
gc.collect()
told["after_letting_go"] = sum(one.bytes for one in held_by({}, include_unnamed=True))
"""
)


@pytest.fixture(scope="module")
def notebook() -> dict[str, Any]:
    return run_after_import(NOTEBOOK, ARENA)


def test_asking_allocates_nothing_even_for_a_table_updated_by_rows(
    notebook: dict[str, Any],
) -> None:
    before, after = notebook["before_and_after"]
    assert after == before


def test_each_name_holds_its_own_kinds(notebook: dict[str, Any]) -> None:
    assert [tuple(pair) for pair in notebook["owners"]] == [
        ("batches[0]", "tensors"),
        ("batches[1]", "tensors"),
        ("batches[2]", "tensors"),
        ("by_name['flags']", "tensors"),
        ("by_name['x']", "tensors"),
        ("data", "data"),
        ("model", "loss and metrics"),
        ("model", "weights"),
        ("model.optimizer", "optimizer slots"),
        ("table", "variables"),
    ]


def test_addresses_and_sizes_are_the_allocator_s_own(notebook: dict[str, Any]) -> None:
    assert notebook["misplaced"] == []
    assert notebook["wrong_sizes"] == []


def test_what_names_hold_is_nearly_all_that_is_in_use(notebook: dict[str, Any]) -> None:
    # The rest is many small things: handles, and constants inside of compiled functions.
    assert 0.99 <= notebook["held_chunks"] / notebook["in_use"] <= 1
    assert notebook["largest_unheld"] <= 64 * 1024


def test_every_piece_of_memory_is_told_once(notebook: dict[str, Any]) -> None:
    different, all_of_them = notebook["addresses"]
    assert different == all_of_them


def test_weights_and_slots_go_by_their_layers(notebook: dict[str, Any]) -> None:
    trained = ["batch_normalization", "dense", "dense_1", "embedding", "lstm/lstm_cell"]
    assert notebook["slots_of"] == trained
    assert notebook["weights_of"] == sorted([*trained, "dropout"])
    assert set(notebook["weights_of"]) < set(notebook["layers"])


def test_what_no_name_holds_is_found_on_demand(notebook: dict[str, Any]) -> None:
    assert notebook["unnamed_weights"] >= notebook["weights"]


def test_nothing_is_kept_after_asking(notebook: dict[str, Any]) -> None:
    assert notebook["after_letting_go"] < notebook["weights"] / 100


NAMES = (
    BEGINNING
    + """
class Trainer:
    __slots__ = ("__dict__",)
    def __init__(self):
        self.cache = [tf.ones((100, 10))]
Trainer.__module__ = "__main__"

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [layers.Dense(8), layers.Dense(8)]
        self.scale = tf.Variable(tf.ones((30, 30)))
    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return x

class Module(tf.Module):
    def __init__(self):
        self.tables = [tf.Variable(tf.ones((40, 40)))]
        self.by_name = {"w": tf.Variable(tf.ones((45, 45)))}

def make_step():
    captured = tf.ones((50, 50))
    return lambda x: x + captured

net = Net()
net(tf.ones((2, 8)))
part = keras.Sequential([layers.Input((4,)), layers.Dense(4)], name="part")
inputs = layers.Input((4,))
whole = keras.Model(inputs, layers.Dense(2)(part(inputs)))
output = tf.ones((60, 60))
shared = tf.ones((70, 70))
names = {
    "trainer": Trainer(), "net": net, "module": Module(), "step": make_step(), "part": part,
    "whole": whole, "optimizer": keras.optimizers.SGD(0.1), "a": shared, "b": [shared],
    "pair": (tf.ones((80, 80)), {3: tf.ones((90, 90))}), "words": tf.constant(["a", "b"]),
    "half": tf.ones((100, 7), tf.bfloat16), "nothing": tf.zeros((0, 3)),
    "Out": {5: output}, "_5": output, "_": output, "_i5": "output", "In": ["", "output"],
    "sparse": tf.sparse.from_dense(tf.eye(20)),
}
held = held_by(names)
told["owners"] = owners(one for one in held if one.bytes > 100)
told["layers_of_whole"] = sorted({one.layer for one in held if one.owner == "whole"})
told["owned_by_part"] = [one.layer for one in held if one.owner == "part"]
told["of_net"] = sorted({one.layer for one in held if one.owner == "net"})
(words,) = [one for one in held if one.owner == "words"]
told["words"] = [words.address, words.bytes, words.dtype]
(half,) = [one for one in held if one.owner == "half"]
told["half"] = [half.bytes, half.dtype, half.shape, half.device, half.address != 0]

def attempt():
    lost = tf.ones((110, 110))
    raise ValueError
try:
    attempt()
except ValueError as error:
    import sys
    sys.last_value = error
told["by_the_error"] = sorted(
    one.owner for one in held_by(names, include_unnamed=True) if one.shape == (110, 110))
images = np.ones((300, 1000), "float32")
sys.hidden = tf.constant(images) + 0
told["without_a_name"] = [
    one.owner for one in held_by({"images": images, "_": images}, include_unnamed=True)
    if one.shape == (300, 1000)]
del sys.hidden, images

def fail(passed):
    del passed
    raise ValueError
try:
    tf.nest.map_structure(fail, tf.ones((115, 115)))
except ValueError as error:
    attempted, sys.last_value = sys.last_value, error
told["by_an_error_in_a_library"] = sorted(
    one.owner for one in held_by(names, include_unnamed=True) if one.shape == (115, 115))
sys.last_value = attempted
del attempted
in_use = lambda: tf.config.experimental.get_memory_info("CPU:0")["current"]
before = in_use()
import gc, traceback
traceback.clear_frames(sys.last_value.__traceback__)
gc.collect()
told["freed_with_the_frames"] = before - in_use()

from oommagic.tf import addresses
undefined = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2])
told["without_a_value"] = addresses.place_of_variable(undefined, 1) is None

with tf.GradientTape() as tape:
    held_by({"net": net})
told["watched"] = len(tape.watched_variables())
@tf.function
def traced():
    return len(held_by({"net": net}))
told["while_tracing"] = int(traced())

big = keras.applications.MobileNetV2(weights=None)
big.compile("adam")
big.optimizer.build(big.trainable_variables)
many = {f"name{i}": i for i in range(10_000)} | {"big": big}
def seconds(**options):
    began = time.perf_counter()
    held_by(many, **options)
    return time.perf_counter() - began
told["seconds"] = min(seconds() for _ in range(5))
told["seconds_with_unnamed"] = min(seconds(include_unnamed=True) for _ in range(3))
"""
)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    return run_after_import(NAMES, ARENA)


def test_memory_is_found_in_containers_objects_and_functions(names: dict[str, Any]) -> None:
    owners = {tuple(pair) for pair in names["owners"]}
    assert owners >= {
        ("trainer.cache[0]", "tensors"),
        ("net.scale", "variables"),
        ("net", "weights"),
        ("module.tables[0]", "variables"),
        ("module.by_name['w']", "variables"),
        ("captured in step", "tensors"),
        ("pair[0]", "tensors"),
        ("pair[1][3]", "tensors"),
        ("a", "tensors"),
        ("sparse", "tensors"),
    }
    assert not [owner for owner, _ in owners if owner.startswith("b")]


def test_what_only_ipython_keeps_is_an_output(names: dict[str, Any]) -> None:
    owners = {tuple(pair) for pair in names["owners"]}
    assert ("Out[5]", "tensors") in owners
    assert not {"_", "_5", "In"} & {owner for owner, _ in owners}


def test_a_model_s_parts_go_by_the_whole(names: dict[str, Any]) -> None:
    assert names["owned_by_part"] == []
    assert len(names["layers_of_whole"]) == 2
    assert any(layer.startswith("part/dense") for layer in names["layers_of_whole"])


def test_a_model_of_the_user_s_class_has_its_layers(names: dict[str, Any]) -> None:
    assert {"dense", "dense_1"} <= set(names["of_net"])


def test_data_types_without_an_address_are_never_asked_for_one(names: dict[str, Any]) -> None:
    assert names["words"] == [0, 48, "string"]
    assert names["half"] == [1400, "bfloat16", [100, 7], "CPU:0", True]


def test_what_the_last_error_keeps_is_named_after_it(names: dict[str, Any]) -> None:
    assert names["by_the_error"] == ["lost in attempt, by the last error"]


def test_a_copy_without_a_name_goes_by_the_array_that_it_is_like(names: dict[str, Any]) -> None:
    assert names["without_a_name"] == ["a copy of images"]


def test_what_a_library_s_functions_keep_goes_by_the_error_alone(names: dict[str, Any]) -> None:
    assert names["by_an_error_in_a_library"] == ["the last error"]


def test_what_the_last_error_keeps_goes_when_its_frames_are_cleared(names: dict[str, Any]) -> None:
    assert names["freed_with_the_frames"] >= 110 * 110 * 4


def test_asking_within_a_tape_or_a_graph_leaves_both_alone(names: dict[str, Any]) -> None:
    assert names["without_a_value"]
    assert names["watched"] == 0
    assert names["while_tracing"] > 0


def test_asking_is_quick(names: dict[str, Any]) -> None:
    # 20 to 50 ms on an idle machine; here other tests may be running beside.
    assert names["seconds"] < 0.25
    assert names["seconds_with_unnamed"] < 2


class Hostile:
    """Runs whenever anything looks at it; nothing should."""

    def __init__(self) -> None:
        object.__setattr__(self, "inside", 1)

    def _never(self, *_: object) -> NoReturn:
        raise AssertionError("the user's code ran")

    __getattr__ = __getattribute__ = __len__ = __iter__ = __eq__ = __bool__ = _never
    __hash__ = __repr__ = __str__ = _never


class HostileList(list[object]):
    """A list that must not be asked."""

    __iter__ = __len__ = __getitem__ = Hostile._never


class PretendedAttributes:
    """Its dictionary is a property."""

    @property
    def __dict__(self) -> NoReturn:  # type: ignore[override]
        raise AssertionError("the user's code ran")


def test_looking_at_attributes_runs_none_of_the_user_s_code() -> None:
    assert attributes_of(Hostile()) == {"inside": 1}
    assert attributes_of(PretendedAttributes()) == {}


class HostileMaker(type):
    """A class of classes, whose own comparisons must not run."""

    def _never(cls, *_: object) -> NoReturn:
        raise AssertionError("the user's code ran")

    __hash__ = __eq__ = _never


class Made(metaclass=HostileMaker):
    """A class that another one than `type` has made."""


def test_classes_are_leaves_whoever_made_them_and_are_not_compared() -> None:
    assert family_of(HostileMaker) == "leaf"
    assert attributes_of(Made) == {}
    assert family_of(Made) == "leaf"


def test_looking_into_a_list_runs_none_of_the_user_s_code() -> None:
    hostile = HostileList([1])
    assert list(items_of(hostile, family_of(type(hostile)))) == [(0, 1)]


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.binary(),
        lambda inner: (
            st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner)
            | st.frozensets(st.integers()) | st.lists(inner).map(deque)
        ),
    )
)  # fmt: skip
def test_containers_are_read_as_they_are(value: object) -> None:
    family = family_of(type(value))
    if family in {"list", "tuple"}:
        assert [item for _, item in items_of(value, family)] == list(value)  # type: ignore[call-overload]
    elif family == "dict":
        assert dict(items_of(value, family)) == value
    elif family == "set":
        assert {item for _, item in items_of(value, family)} == value
    else:
        assert family == "leaf"


def test_an_empty_cell_of_a_closure_is_passed_over() -> None:
    def outer() -> Any:
        def inner() -> object:
            return later, now

        now = 1
        found = list(closure_of(inner))
        later = 2
        return found

    assert outer() == [("now", 1)]


def test_without_tensorflow_nothing_is_held_and_it_is_not_imported() -> None:
    assert held_by({"x": [1, 2]}, include_unnamed=True) == ()
    assert "tensorflow" not in sys.modules


def test_a_class_that_has_another_s_entries_is_passed_over() -> None:
    own = vars(type("Plain", (), {}))["__dict__"]
    pretender = type("Pretender", (), {"__slots__": (), "__dict__": own})()
    assert attributes_of(pretender) == {}


# ---- What a cell reaches ------------------------------------------------------------------------


def _trains() -> object:
    return encoder  # type: ignore[name-defined]  # noqa: F821 (a name of the notebook's)


_TRAINER = type("Trainer", (), {"__module__": "__main__", "run": _trains})


@pytest.mark.parametrize(
    ("source", "reached"),
    [
        ("trainer.run(x)", "encoder"),
        ("trainer.run(x)", "model"),
        ("Trainer().run(x)", "encoder"),
        ("run_it(x)", "encoder"),
        ("h = %time model.fit(x, y)", "model"),
        ("get_ipython().run_line_magic('time', 'model.fit(x, y)')", "model"),
        ("get_ipython().run_cell_magic('timeit', '-n 1 -r1 ', 'x = 1\\nmodel.fit(x, y)')", "model"),
        ("y = _ + 1", "Out[1]"),
        ("y = _1 + 1", "Out[1]"),
        ("y = Out[1] + 1", "Out[1]"),
        ("best.fit(x, y)", "model"),
        ("trainer.run(x)", "best"),
        ("nets['first'].fit(x, y)", "model"),
        ("Out[2].fit(x, y)", "model"),
        ("keeper.run(x)", "model"),
        ("hostile.run(x)", "hostile"),
        ("made.run(x)", "made"),
    ],
)
def test_what_a_cell_reaches_by_methods_magics_and_outputs_is_used(
    source: str, reached: str
) -> None:
    trainer, keeper, model, output = _TRAINER(), _TRAINER(), object(), object()
    trainer.__dict__["model"] = model
    keeper.__dict__["models"] = [model]
    namespace = {
        "trainer": trainer, "Trainer": _TRAINER, "run_it": trainer.run, "model": model,
        "encoder": object(), "unused": object(), "_": output, "_1": output, "best": model,
        "Out": {1: output, 2: model}, "nets": {"first": model}, "keeper": keeper,
        "hostile": Hostile(), "made": Made(),
    }  # fmt: skip
    names, _ = _names_reached(source, namespace)
    assert reached in names
    assert "unused" not in names


def test_the_items_of_what_is_data_are_not_looked_at() -> None:
    model = object()
    few, many = HostileList([model] * 9), HostileList([model] * (MOST_ITEMS + 1))
    namespace = {"model": model, "few": few, "many": many}
    assert _names_reached("few", namespace)[0] == {"few", "model"}
    assert _names_reached("many", namespace)[0] == {"many"}


def test_a_cell_that_uses_a_number_or_none_does_not_use_the_names_that_stand_for_it() -> None:
    namespace = {"rows": [1, 3, None], "depth": 3, "left": None, "sizes": (3,), "text": "3"}
    assert _names_reached("f(rows)", namespace)[0] == {"f", "rows"}
    assert _names_reached("f(depth)", namespace)[0] == {"f", "depth"}


def test_a_class_whose_entries_have_comparisons_of_their_own_is_not_compared() -> None:
    holder = type("Holder", (), {"__module__": "__main__", "entry": Made()})()
    assert list(functions_of(holder)) == []


@pytest.mark.parametrize(
    ("name", "outputs"), [("x", set()), ("_", {"Out[1]"}), ("_1", {"Out[1]"}), ("Out", {"Out[1]"})]
)
def test_names_that_are_no_texts_are_passed_over(name: str, outputs: set[str]) -> None:
    names: dict[Any, object] = {1: 2, "Out": {1: 3}, "_1": 3, "_": 3}
    reached, _ = _names_reached(name, names)
    assert reached >= {name, *outputs}
