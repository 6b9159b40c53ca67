"""What all tests share."""

import os

from hypothesis import settings

# CI repeats the same examples, so that a red run is about the change and not about luck. A first
# allocation can take long: no deadline.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")
