"""A plan in the making: how far it is, and then the answer in the same place."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.display import publish_display_data

from oommagic.magics.place import Place
from oommagic.progress import saying

if TYPE_CHECKING:
    from oommagic.explain.plan import Plan


def in_terminal(values: list[Any], asked: Any) -> None:
    """Make a plan, and say on one line how far it is."""
    from oommagic.show import planner

    with saying() as say:
        found = _planned(values, asked, say)
    publish_display_data(planner.bundle(found.forecast))


def in_notebook(values: list[Any], asked: Any) -> None:
    """Make a plan, and show it with a slider."""
    from oommagic.show import planner
    from oommagic.tf.arena import CARDS

    with Place("Planning") as place:
        found = _planned(values, asked, place.say)
    place.show(planner.bundle(found.forecast, beside_slider=True))
    publish_display_data(planner.slider(found.forecast, CARDS))


def _planned(values: list[Any], asked: Any, say: Callable[[str], None]) -> "Plan":
    from oommagic import planning

    limit, like = " ".join(asked.limit) or None, " ".join(asked.like) or None
    question = planning.question(*values, predict=asked.predict, limit=limit, like=like)
    if asked.measure:
        question.check_limit()
    plan = question.answer(say)
    if asked.measure:
        question.prove(plan, say)
    return plan
