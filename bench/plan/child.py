"""Runs in a process of its own: trains real steps on a training device, and tells their peaks.

`python -m bench.plan.child MODEL OPTIMIZER JIT BATCH STEPS`, with the device in the environment.
This is the truth that plans are held against, so nothing of oommagic is in it.
"""

import json
import os
import sys
from typing import Any

import keras
import tensorflow as tf

from bench.plan.models import build

_DEVICE = "CPU:0"


class _Peaks(keras.callbacks.Callback):  # type: ignore[misc] # Keras is untyped here
    """Notes the allocator's peak within each step."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[int] = []

    def on_train_batch_begin(self, *_batch: int, **_logs: Any) -> None:
        tf.config.experimental.reset_memory_stats(_DEVICE)

    def on_train_batch_end(self, *_batch: int, **_logs: Any) -> None:
        self.bytes.append(tf.config.experimental.get_memory_info(_DEVICE)["peak"])


def train(name: str, optimizer: str, batch: int, steps: int, *, jit: bool) -> list[int]:
    """Fit a few steps of one size; give the peak of each."""
    model, make_batch = build(name, optimizer, jit=jit)
    peaks = _Peaks()
    dataset = tf.data.Dataset.from_tensors(make_batch(batch)).repeat(steps)
    model.fit(dataset, verbose=0, shuffle=False, callbacks=[peaks])
    return peaks.bytes


def main() -> None:
    """Say the peaks, or that it ran out."""
    name, optimizer, jit, batch, steps = sys.argv[1:]
    try:
        peaks = train(name, optimizer, int(batch), int(steps), jit=jit == "compiled")
        said: dict[str, Any] = {"outcome": "fits", "peaks": peaks}
    except (tf.errors.ResourceExhaustedError, tf.errors.InternalError) as error:
        if "alloc" not in str(error):
            raise
        said = {"outcome": "ran out"}
    print(json.dumps(said), flush=True)
    os._exit(0)  # an executor that has run out may never end


if __name__ == "__main__":
    main()
