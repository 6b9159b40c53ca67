"""Runs in a process of its own: prints, as JSON, what the tape costs one workload.

`python -m bench.tape.child NAME ROUNDS`; NAME is one of `WORKLOADS`, or `reading`.
"""

import json
import resource
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from oommagic.tf.tape import Taping
from oommagic.tf.tape_bounds import Limits
from oommagic.tf.tape_reader import Taped, read_tapes

Step = Callable[[], object]

FEWEST_STEPS = 30
PLAIN_S = 1.0
"""What steps are compared over, at least: one alone takes two milliseconds or half a second."""
EAGER_S = 5.0
MILLION = 1_000_000


def _fit(model: Any, *shape: int) -> Step:
    import tensorflow as tf

    model.compile("adam", "mse")
    x = tf.random.uniform(shape)
    y = tf.zeros((shape[0], *model.output_shape[1:]))
    return lambda: model.train_on_batch(x, y)


def _small_cnn() -> Step:
    import keras
    from keras import layers

    parts = [keras.Input((28, 28, 1)), layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(10)]
    return _fit(keras.Sequential(parts), 16, 28, 28, 1)


def _mobilenet() -> Step:
    import keras

    model = keras.applications.MobileNetV2(weights=None, input_shape=(96, 96, 3), classes=10)
    return _fit(model, 8, 96, 96, 3)


def _resnet() -> Step:
    import keras

    model = keras.applications.ResNet50(weights=None, input_shape=(128, 128, 3), classes=10)
    return _fit(model, 8, 128, 128, 3)


def _lstm() -> Step:
    import keras
    from keras import layers

    parts = [keras.Input((100, 64)), layers.LSTM(128), layers.Dense(1)]
    return _fit(keras.Sequential(parts), 64, 100, 64)


WORKLOADS = {
    "small CNN": _small_cnn,
    "MobileNetV2": _mobilenet,
    "ResNet50": _resnet,
    "LSTM, 100 steps": _lstm,
}


class Ticking:
    """A tape, and the thread that ticks for it."""

    def __init__(self) -> None:
        self.taping = Taping()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick)
        self.taping.begin()
        self._thread.start()

    def _tick(self) -> None:
        while not self._over.wait(0.05):
            self.taping.tick()

    def is_recording(self) -> bool:
        """Say whether the profiler runs or is being saved."""
        return self.taping.is_recording

    def end(self) -> tuple[Any, ...]:
        """Stop both."""
        self._over.set()
        self._thread.join()
        return self.taping.end()


def steps(make: Callable[[], Step], rounds: int) -> dict[str, Any]:
    """Compare steps plain, on the tape, and after it, by turns in one process."""
    step = make()
    for _ in range(5):
        step()
    count = max(FEWEST_STEPS, int(PLAIN_S / min(_timed(step) for _ in range(5))))
    found: dict[str, list[float]] = {"taped": [], "after": [], "memory_mb": [], "end_ms": []}
    events = 0
    for _ in range(rounds):
        plain = [_timed(step) for _ in range(count)]
        before = _resident_mb()
        _reset_peak()
        ticking = Ticking()
        found["taped"].append(median(_timed(step) for _ in range(Limits().steps)) / median(plain))
        while ticking.is_recording():
            sleep(0.01)
        after = [_timed(step) for _ in range(count)]
        began = perf_counter()
        tapes = ticking.end()
        found["end_ms"].append((perf_counter() - began) * 1000)
        found["memory_mb"].append(_peak_mb() - before)
        found["after"].append(median(after) / median(plain))
        events = sum(len(tape.bytes) for tape in tapes)
    return {"events": events, **{name: _summary(values) for name, values in found.items()}}


def eager(rounds: int) -> dict[str, Any]:
    """Compare a whole eager loop plain and taped."""
    import tensorflow as tf

    a = tf.random.uniform((64, 64))
    w = tf.Variable(tf.random.uniform((64, 64)))

    def loop(count: int) -> None:
        for _ in range(count):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.relu(a @ w + 1.0) ** 2)
            w.assign_sub(0.001 * tape.gradient(loss, w))

    loop(300)
    count = int(EAGER_S / _timed(lambda: loop(300)) * 300)
    ratios = []
    for _ in range(rounds):
        plain = _timed(lambda: loop(count))
        began = perf_counter()
        ticking = Ticking()
        loop(count)
        ticking.end()
        ratios.append((perf_counter() - began) / plain)
    return {"whole": _summary(ratios)}


def reading(rounds: int) -> dict[str, Any]:
    """Repeat a real recording until it has a million events, and read that."""
    step = _lstm()
    step()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "repeated.xplane.pb"
        count = _write_repeated(step, file)
        taken = []
        for _ in range(rounds):
            _reset_peak()
            before = _resident_mb()
            began = perf_counter()
            tapes = read_tapes(Taped(file, "", 0.0, 0.0, (), is_whole=True))
            taken.append((perf_counter() - began) * MILLION / count)
            memory_mb = _peak_mb() - before
    return {
        "events": sum(len(tape.bytes) for tape in tapes),
        "seconds_a_million": _summary(taken),
        "memory_mb": round(memory_mb, 1),
    }


def _write_repeated(step: Step, file: Path) -> int:
    """Write the lines of one recording again and again, as they would stand in one file."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    taping = Taping()
    taping.begin()
    step()
    taping.stop()
    space = xplane_pb2.XSpace.FromString(taping.files[0].read_bytes())
    events = sum(len(tape.bytes) for tape in taping.end())
    (plane,) = [plane for plane in space.planes if plane.name == "/host:CPU"]
    lines = b"".join(_field(3, line.SerializeToString()) for line in plane.lines)
    del plane.lines[:]
    times = -(-MILLION // events)
    file.write_bytes(_field(1, plane.SerializeToString() + lines * times))
    return times * events


def _field(number: int, content: bytes) -> bytes:
    head, length = bytes([number << 3 | 2]), len(content)
    while length >= 0x80:
        head += bytes([length & 0x7F | 0x80])
        length >>= 7
    return head + bytes([length]) + content


def _timed(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def _summary(values: list[float]) -> dict[str, float]:
    return {
        "median": round(median(values), 3),
        "lowest": round(min(values), 3),
        "highest": round(max(values), 3),
    }


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _resident_mb() -> float:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize() / 1e6


def main() -> int:
    """Measure what is asked for."""
    name, rounds = sys.argv[1], int(sys.argv[2])
    others = {"eager loop": eager, "reading": reading}
    told = others[name](rounds) if name in others else steps(WORKLOADS[name], rounds)
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
