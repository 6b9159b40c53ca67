"""Built-in names that stay what they are while the user's code runs.

A cell may rebind `len` or `print` in `builtins`, and then they are rebound for everyone. Python
looks such a name up in `__builtins__` of the module whose function uses it. So a module whose
functions run in the middle of the user's code keeps built-in names of its own:

    keep_builtins(globals())

stands below its imports, since a function takes its module's built-in names when it is defined.
"""

import builtins

_KEPT = vars(builtins).copy()


def keep_builtins(namespace: dict[str, object]) -> None:
    """Let the functions that a module defines from here on use the built-in names of now."""
    namespace["__builtins__"] = _KEPT
