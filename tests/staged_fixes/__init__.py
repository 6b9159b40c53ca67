"""Programs that need one certain fix, on a small device: what is predicted for it is measured."""

from staged_fixes import causes, host, step
from staged_fixes.stage import Stage

__all__ = ["STAGES", "Stage"]

STAGES: tuple[Stage, ...] = (*step.STAGES, *causes.STAGES, *host.STAGES)
