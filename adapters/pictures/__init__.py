"""Timelines as pictures, for people who would rather look than read."""
