"""Millions of cheap lines."""

DEFAULT_ITERATIONS = 3_000_000

# measured
total = 0
for number in range(ITERATIONS):
    total += number
    total ^= 3
