"""Touches the machine, draws no conclusion."""
