"""Batches of padded sequences, each put together from hundreds of small NumPy arrays."""

import numpy as np

DEFAULT_ITERATIONS = 400
LENGTHS = np.random.default_rng(0).integers(8, 256, size=512).tolist()

# measured
total = 0
for number in range(ITERATIONS):
    sequences = [np.arange(length) for length in LENGTHS]
    longest = max(len(sequence) for sequence in sequences)
    padded = [np.pad(sequence, (0, longest - len(sequence))) for sequence in sequences]
    batch = np.stack(padded)
    weights = batch.astype(np.float64) / longest
    total += float(weights[-1, -1]) + number
