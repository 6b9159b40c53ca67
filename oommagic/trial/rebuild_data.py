"""Makes datasets and other things of a notebook anew in a child: pickles name these functions."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MANY = 100_000


def made(before: Any, method: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Make a dataset by a method of another one, or from nothing."""
    import tensorflow as tf

    return getattr(tf.data.Dataset if before is None else before, method)(*arguments, **keywords)


def cached_in_file(before: Any) -> Any:
    """Make a dataset that keeps its elements in a file, which is not the user's."""
    return before.cache(str(Path(tempfile.mkdtemp()) / "cache"))


def records(filenames: Any, *options: Any) -> Any:
    """Make a dataset that reads files of records."""
    import tensorflow as tf

    return tf.data.TFRecordDataset(filenames, *options)


def made_up(specs: Any, count: int) -> Any:
    """Make a dataset of zeros: endless if the other one is, and long if that is not known."""
    import tensorflow as tf

    def zeros(spec: Any) -> Any:
        return tf.zeros(spec.shape, spec.dtype) if spec.dtype != tf.string else _texts(spec)

    dataset = tf.data.Dataset.from_tensors(tf.nest.map_structure(zeros, specs))
    if count == tf.data.UNKNOWN_CARDINALITY:  # a loop over all of them must have an end
        count = _MANY
    return dataset.repeat(count if count >= 0 else None)


def _texts(spec: Any) -> Any:
    import tensorflow as tf

    return tf.fill(spec.shape, "")


def no_writer() -> Any:
    """Make what takes summaries and writes them nowhere."""
    import tensorflow as tf

    return tf.summary.create_noop_writer()


def idle_callback() -> Any:
    """Make a callback of Keras that does nothing."""
    import keras

    return keras.callbacks.Callback()


class NoShell:
    """Stands for IPython's shell: whatever it is asked for, it does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Give something that can be called."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def get_ipython(self) -> "NoShell":
        """Give itself, as the shell does."""
        return self
