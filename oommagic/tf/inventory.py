"""Which names of the notebook hold device memory, and what is held without a name.

Nothing of the user's runs, TensorFlow is never imported, and nothing is kept afterwards.
"""

from collections.abc import Mapping

from oommagic.own_builtins import keep_builtins
from oommagic.recording import Held
from oommagic.tf import context
from oommagic.tf.notebook_names import arrays_by_shape, earlier_outputs, is_the_users
from oommagic.tf.unnamed import look_at_everything, look_at_last_error
from oommagic.tf.walk import Owner, Walk, layers_in

keep_builtins(globals())


def held_by(namespace: Mapping[str, object], *, include_unnamed: bool = False) -> tuple[Held, ...]:
    """Tell what each name holds of the devices' memory; each piece once, under one name.

    `include_unnamed` adds what lives without a name, which looks at all objects of the process.
    """
    if not context.has_devices():
        return ()
    walk = Walk()
    _look_at_names(walk, namespace)
    if include_unnamed:
        look_at_last_error(walk)
        look_at_everything(walk, arrays_by_shape(namespace))
    return tuple(walk.held)


def _look_at_names(walk: Walk, namespace: Mapping[str, object]) -> None:
    """Look at models first, the largest before its parts, and at IPython's own names last."""
    names = {
        name: value
        for name, value in list(namespace.items())
        if walk.family(value) != "leaf" and type(name) is str
    }
    own = [item for item in names.items() if is_the_users(item[0])]
    models = [(name, value) for name, value in own if walk.family(value) == "layer"]
    models.sort(key=lambda item: -sum(1 for _ in layers_in(item[1])))
    for name, value in (*models, *own, *earlier_outputs(names)):
        walk.visit(value, Owner(name))
