"""Measurements of speed and size; a benchmark, never a timed test. Run by `make bench`."""
