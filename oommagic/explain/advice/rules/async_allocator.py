"""Memory in pieces: another allocator on a card, one size of batches anywhere."""

from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import IN_PIECES, IN_PIECES_ON_A_CARD
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.units import format_bytes

_VARIABLE = "TF_GPU_ALLOCATOR"


class AsyncAllocator(Rule):
    """Less fragmentation."""

    name = "async-allocator"
    title = "The asynchronous allocator"
    what = (
        "Where enough was free, but not in one piece: on a GPU, TensorFlow can run on CUDA's own "
        "pool of memory, which joins pieces. It has to be asked for before TensorFlow is imported. "
        "Anywhere, batches of one size leave pieces that fit the next batch."
    )
    why = (
        "TensorFlow's allocator cuts a few large regions into blocks, and a block is as large as "
        "what was free between two that are in use. CUDA's pool maps pages instead. It is for GPUs "
        "only, and then a run can't be taped."
    )
    example = "import tensorflow as tf"
    instead = (
        "import os\nos.environ['TF_GPU_ALLOCATOR'] = 'cuda_malloc_async'\nimport tensorflow as tf"
    )
    safety = "hint"
    fix_safety = "Results stay the same."
    cost = "a restart"
    causes = frozenset({"fragmentation"})
    speaks = (
        Case("model.fit(x, y, batch_size=128)\n", IN_PIECES_ON_A_CARD),
        Case("model.fit(ds.batch(128))\n", IN_PIECES),
    )
    is_silent = (
        Case("model.fit(x, y, batch_size=128)\n", STEP_OF_96),
        Case("import os\nos.environ['TF_GPU_ALLOCATOR'] = 'cuda_malloc_async'\n", IN_PIECES),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Speak where memory is in pieces."""
        if here.cause != "fragmentation" or _VARIABLE in cell.text:
            return
        largest = here.largest_free_bytes
        free = f"No free block is larger than {format_bytes(largest)}. " if largest else ""
        even = "batches of one size throughout, with `drop_remainder=True`, leave blocks that fit"
        on_gpu = (
            f"After a restart, `os.environ['{_VARIABLE}'] = 'cuda_malloc_async'` before "
            f"TensorFlow is imported joins pieces; {even}."
        )
        yield Found(
            title="Another allocator" if here.is_on_gpu else "Batches of one size throughout",
            message=f"{free}{on_gpu if here.is_on_gpu else f'Free memory is in pieces; {even}.'}",
            place=here.place,
        )
