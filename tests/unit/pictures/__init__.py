"""Timelines as pictures."""
