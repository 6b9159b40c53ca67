"""Turns a report into words, pages and pictures."""
