"""Measurements: each a command, its figures as JSON beside it."""
