"""The command line: `python -m oommagic demo` and `python -m oommagic show FILE`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oommagic import report, session
from oommagic.errors import OommagicError
from oommagic.show import text

_DEMO_DEVICE = "512MB"

# The program of an article on ResourceExhaustedError. It asks for too much in its first step, which
# is always recorded: so the report says what filled the device just then.
_DEMO_CELL = """\
%%oomprofile
import numpy as np
import tensorflow as tf

images = np.random.rand(64, 256, 256, 3).astype(np.float32)
labels = np.random.randint(0, 2, 64)

model = tf.keras.Sequential([
    tf.keras.Input((256, 256, 3)),
    tf.keras.layers.Conv2D(32, (3, 3), activation='relu'),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Conv2D(64, (3, 3), activation='relu'),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(1, activation='sigmoid'),
])
model.compile(optimizer='adam', loss='binary_crossentropy')

model.fit(images, labels, batch_size=32, epochs=10, verbose=0)
"""

_PLAN_CELL = "import oommagic\nplan = oommagic.plan(model, (images, labels))\nplan"
_FITTING_CELL = "model.fit(images, labels, batch_size=plan.max_batch(), epochs=1, verbose=2);"

_NOW_YOU = """
Above: why it ran out, what each line took, who held what on the device at that moment, and the
batch that fits, trained at on the same device. In your notebook:

  %load_ext oommagic    once, at the top
  %%oomprofile          on top of a cell: the same report, below the cell's own output
  %oomwhy               after any error, in a cell without the magic too
  %oombatch model       the peak for any batch size, on a slider
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(prog="oommagic", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="let a model run out of memory on a small device")
    demo.add_argument("-o", "--output", type=Path, metavar="FILE", help="save the report as JSON")
    show = commands.add_parser("show", help="show a saved report")
    show.add_argument("file", type=Path)
    chosen = parser.parse_args(arguments)
    try:
        return _demo(chosen.output) if chosen.command == "demo" else _show(chosen.file)
    except OommagicError as error:
        print(error, file=sys.stderr)
        return 1


def _show(path: Path) -> int:
    print(text.render(report.load(path)))
    return 0


def _demo(output: Path | None) -> int:
    from oommagic.magics import open_shell

    # TensorFlow's own log would stand between the cell and its report.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    session.use_device(_DEMO_DEVICE)
    print(f"A training device of {_DEMO_DEVICE} on this CPU, and this cell:\n")
    print(_DEMO_CELL, flush=True)
    shell = open_shell()
    shell._showtraceback = _show_in_a_line  # noqa: SLF001 (what front ends put their own in for)
    result = shell.run_cell(_DEMO_CELL)
    if type(result.error_in_exec).__name__ != "ResourceExhaustedError":
        print(f"The demo did not run out of memory on {_DEMO_DEVICE}.", file=sys.stderr)
        return 1
    if not _train_at_what_fits(shell):
        return 1
    print(_NOW_YOU)
    if output is not None:
        session.last_report().save(output)
        print(f"The report is in {output}; to see it again: python -m oommagic show {output}")
    return 0


def _train_at_what_fits(shell: Any) -> bool:
    """Say which batch fits, and train at it in the same process on the same device."""
    for cell in (_PLAN_CELL, _FITTING_CELL):
        print(f"\nNext cell:\n\n{cell}\n", flush=True)
        if not shell.run_cell(cell).success:
            return False
    return True


def _show_in_a_line(kind: type, _error: object, traceback: Sequence[str]) -> None:
    count = len("\n".join(traceback).splitlines())
    print(f"{kind.__name__} (its {count} lines are left out here)\n")


if __name__ == "__main__":
    sys.exit(main())
