"""Millions of cheap lines, one in three with a call of a built-in function."""

DEFAULT_ITERATIONS = 9_000_000

# measured
total = 0
for number in range(ITERATIONS):
    total += abs(number - 7)
    total ^= 3
