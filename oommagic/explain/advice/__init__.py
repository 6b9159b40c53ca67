"""Suggestions: what to change in a cell, why there, and what it is expected to save."""
