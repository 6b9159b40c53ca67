"""What grows, from figures that grow: over time, from step to step, from run to run.

Memory that is taken once is not growth: not a first step's, not a cache that fills and stays, not
a tensor that a step returns and the next one replaces. So each finding needs several figures, of
which the later ones rise as well.
"""

from oommagic.explain.growth.makers import retraced
from oommagic.explain.growth.search import growths
from oommagic.explain.growth.value import Growth

__all__ = ["Growth", "growths", "retraced"]
