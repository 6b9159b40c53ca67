"""What the steps of a plan ask for, added up: no allocator that rounds up and leaves gaps."""

from oommagic.explain.scaling import INHERITED, Script, Scripts


def highest_live(scripts: Scripts, batch: int) -> int:
    """Add up what is live through the whole run; what a script leaves, a later one may free."""
    held = sum(one.law.at(batch) for one in scripts.before)
    for script in (scripts.made, scripts.prepared):
        if script is not None:
            held, _ = _lived_through(script, batch, held)
    highest = held
    for script in scripts.run(batch):
        held, reached = _lived_through(script, batch, held)
        highest = max(highest, reached)
    return highest


def _lived_through(script: Script, batch: int, held: int) -> tuple[int, int]:
    """Give what is held after a script, and at most during it."""
    sizes = [allocation.law.at(batch) for allocation in script.allocations]
    left = [allocation.law.at(batch) for allocation in script.inherited]
    highest = held
    for event in script.events:
        if event < 0:
            held -= sizes[~event]
        else:
            held += sizes[event] if event < INHERITED else -left[event - INHERITED]
        highest = max(highest, held)
    return held, highest
