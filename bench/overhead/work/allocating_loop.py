"""NumPy arrays of 1 to 8 MiB, made and dropped."""

import numpy as np

DEFAULT_ITERATIONS = 500
MIB = 1024 * 1024
np.ones(8 * MIB // 8)

# measured
total = 0.0
for number in range(ITERATIONS):
    size = (1 + number % 8) * MIB // 8
    block = np.ones(size)
    block *= 2.0
    shifted = block + 1.0
    total += float(shifted[-1])
