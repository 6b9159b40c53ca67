"""Lets a cell train for a few steps only, and takes their time and loss.

Steps are those of `fit`, `evaluate` and `predict`, which end early of their own accord, and those
of loops of one's own: each use of an optimizer, or each call of a tf.function that uses one. The
next step of such a loop ends the cell. All of it is for a child process, and stays as it is made.
"""

import functools
import inspect
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from oommagic.tf.step_counts import Budget, Count

_WRITING = ("ModelCheckpoint", "TensorBoard", "CSVLogger", "BackupAndRestore", "RemoteMonitor")
"""Keras's callbacks that write files or send things away."""
_RUNS = ("fit", "evaluate", "predict")
_PREDICTING_S = 20.0
"""All of a cell's predictions may take that long: it is their results that take memory."""


class Enough(BaseException):
    """The cell has made its steps; nothing that catches errors may take this for one."""


class FewSteps:
    """Counts the steps of a cell, in this process, from `begin` on."""

    def __init__(self, budget: Budget, on_step: Callable[[int], None]) -> None:
        """Count nothing yet."""
        self._budget = budget
        self.on_step = on_step
        self._training: list[Count] = []
        self._others: list[Count] = []
        self._by_code: dict[object, Count] = {}
        self._by_function: weakref.WeakKeyDictionary[Any, Count] = weakref.WeakKeyDictionary()
        self._first_prediction_s: float | None = None
        self._ends_early: Any = None
        self._depth = 0
        self._trained = False
        self.left_out: dict[str, None] = {}
        """Callbacks that were left out, by their classes' names."""
        self.has_cut = False
        """Whether a prediction was ended early."""
        self.fits = 0
        """How often the cell called `fit`."""
        self.has_cut_fits = False
        """Whether there would have been more calls of it."""
        self._first_fit_s = 0.0
        self.has_cut_training = False
        self.has_failed = False
        """Whether an error came out of a step or another call that is counted."""
        self.loss: object = None
        """What `fit` or `train_on_batch` said last."""

    def begin(self) -> None:
        """Stand between the cell and Keras and TensorFlow, as far as they are imported."""
        keras: Any = sys.modules.get("keras")
        if keras is None:
            return
        self._ends_early = _ends_early(keras)
        trainer = _owner(keras.Model, "fit")
        for name in _RUNS:
            setattr(trainer, name, self._shortened(getattr(trainer, name), name))
        trainer.train_on_batch = self._listened(trainer.train_on_batch)
        optimizer = _owner(keras.optimizers.Optimizer, "apply")
        optimizer.apply = self._counted_apply(optimizer.apply)
        tf: Any = sys.modules["tensorflow"]
        function = type(tf.function(_nothing))
        function.__call__ = self._counted_call(function.__call__)

    @property
    def main(self) -> Count | None:
        """The count that tells the cell's time per step."""
        counts = [one for one in (self._training or self._others) if one.steps]
        return max(counts, key=lambda count: count.steps, default=None)

    @property
    def steps(self) -> int:
        """All steps so far, of whatever sort."""
        return sum(one.steps for one in (*self._training, *self._others))

    @property
    def changes_what_follows(self) -> bool:
        """Whether the cell's other lines find less than they would: epochs, results, files."""
        return self.has_cut_training or self.has_cut or bool(self.left_out)

    def new_count(self, *, is_training: bool) -> Count:
        """Begin to count the steps of one more call or loop."""
        count = Count(self._budget)
        (self._training if is_training else self._others).append(count)
        return count

    # ---- Keras's own loops --------------------------------------------------------------------

    def _shortened(self, run: Callable[..., Any], name: str) -> Callable[..., Any]:
        signature = inspect.signature(run)

        @functools.wraps(run)
        def shortened(*args: Any, **kwargs: Any) -> Any:
            if name == "fit" and not self._depth:
                self._begin_fit()
            bound = signature.bind(*args, **kwargs)
            given = bound.arguments.get("callbacks")
            is_list = hasattr(given, "callbacks")  # one of Keras's own
            # Within `fit`, `evaluate` has the callbacks of `fit`, and ours is among them.
            if not is_list or not self._depth:
                ours = self._callback(name)
                bound.arguments["callbacks"] = self._with(given, ours, is_list=is_list)
            return self._within(run, *bound.args, **bound.kwargs)

        return shortened

    def _begin_fit(self) -> None:
        """Count one more `fit`, or end the cell in its place: a loop may have hundreds."""
        now_s, budget = time.perf_counter(), self._budget
        self._first_fit_s = self._first_fit_s or now_s
        is_late = now_s - self._first_fit_s > budget.fits_s
        if self.fits >= budget.fits > 0 or (is_late and not budget.fits):
            self.has_cut_fits = True
            raise Enough
        self.fits += 1

    def _with(self, given: Any, ours: Any, *, is_list: bool) -> Any:
        if is_list:
            given.append(ours)
            return given
        return [*self._harmless(given), ours]

    def _harmless(self, given: Any) -> Iterator[Any]:
        """Yield callbacks that neither write files nor send anything away."""
        keras: Any = sys.modules["keras"]
        writing = tuple(getattr(keras.callbacks, name) for name in _WRITING)
        for one in given if isinstance(given, list | tuple) else [given] if given else []:
            if isinstance(one, writing):
                self.left_out[type(one).__name__] = None
            else:
                yield one

    def _callback(self, name: str) -> Any:
        """Make a callback that ends Keras's loop after its last step."""
        return self._ends_early(self, self.new_count(is_training=name == "fit"))

    def is_long(self, count: Count) -> bool:
        """Say whether a prediction has gone on for long enough."""
        now_s = time.perf_counter()
        if self._first_prediction_s is None:
            self._first_prediction_s = now_s
        is_long = now_s - self._first_prediction_s > _PREDICTING_S and count.is_enough()
        self.has_cut |= is_long
        return is_long

    def _listened(self, train_on_batch: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(train_on_batch)
        def listened(model: Any, *args: Any, **kwargs: Any) -> Any:
            told = train_on_batch(model, *args, **kwargs)
            first = told[0] if isinstance(told, list | tuple) and told else told
            self.loss = first.get("loss") if isinstance(first, dict) else first
            return told

        return listened

    # ---- Loops of one's own -------------------------------------------------------------------

    def _counted_apply(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        tf: Any = sys.modules["tensorflow"]

        @functools.wraps(apply)
        def counted(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if not tf.executing_eagerly() or self._depth:
                self._trained = True  # the function that is being traced is a step
                return apply(optimizer, *args, **kwargs)
            return self._step(self._by_function, optimizer, apply, optimizer, *args, **kwargs)

        return counted

    def _counted_call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        tf: Any = sys.modules["tensorflow"]

        @functools.wraps(call)
        def counted(function: Any, *args: Any, **kwargs: Any) -> Any:
            if self._depth or not tf.executing_eagerly():
                return call(function, *args, **kwargs)
            counts, key = self._place_of(function)
            if key in counts:
                return self._step(counts, key, call, function, *args, **kwargs)
            self._trained = False
            began = Count(self._budget)
            result = self._within(call, function, *args, **kwargs)
            if self._trained:
                counts[key] = began
                self._training.append(began)
                self._ended(began)
            return result

        return counted

    def _place_of(self, function: Any) -> tuple[Any, Any]:
        """Say where a tf.function is counted: the notebook's by its code, as it may be remade."""
        code = getattr(getattr(function, "python_function", None), "__code__", None)
        if code is None or "keras/src" in code.co_filename.replace("\\", "/"):
            return self._by_function, function
        return self._by_code, code

    def _step(self, counts: Any, key: Any, run: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        """Make a step of a loop, or end the cell in its place."""
        if key not in counts:
            counts[key] = self.new_count(is_training=True)
        count = counts[key]
        if count.is_enough():
            raise Enough
        result = self._within(run, *args, **kw)
        self._ended(count)
        return result

    def _ended(self, count: Count) -> None:
        count.end()
        self.on_step(count.steps)

    def _within(self, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._depth += 1
        is_done = False
        try:
            result = run(*args, **kwargs)
            is_done = True
        finally:
            self._depth -= 1
            self.has_failed |= not is_done
        return result


def _ends_early(keras: Any) -> Any:
    """Make a class of callbacks that end Keras's loops; one, since classes go away late."""

    class EndsEarly(keras.callbacks.Callback):  # type: ignore[misc]
        """Counts batches; validation within `fit` has a count for each time."""

        def __init__(self, few: FewSteps, count: Count) -> None:
            super().__init__()
            self.few, self.count, self.test, self.first = few, count, count, 0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            del logs
            self.first = batch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.count.end(max(1, batch + 1 - self.first))
            self.few.loss = (logs or {}).get("loss", self.few.loss)
            self.few.on_step(self.count.steps)
            if self.count.is_enough():
                self.few.has_cut_training = self.model.stop_training = True

        def on_test_begin(self, logs: Any = None) -> None:
            del logs
            self.test = self.few.new_count(is_training=False)

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            del batch, logs
            self.test.end()
            self.model.stop_evaluating = self.test.is_enough()

        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            del batch, logs
            self.count.end()
            self.model.stop_predicting = self.few.is_long(self.count)

    return EndsEarly


def loss_of(value: object) -> float | None:
    """Give a loss as a number, if it is one."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number


def set_seed(seed: int) -> None:
    """Have all that is drawn at random be the same in each run."""
    import random

    random.seed(seed)
    numpy, keras = sys.modules.get("numpy"), sys.modules.get("keras")
    if numpy is not None:
        numpy.random.seed(seed)
    if keras is not None:
        keras.utils.set_random_seed(seed)


def _owner(kind: type, name: str) -> Any:
    """Give the class that a method stands in."""
    return next(each for each in kind.__mro__ if name in vars(each))


def _nothing() -> None:
    """Stand for a function; only the type of what is made of it counts."""
