"""What an agent senses besides the GPUs' numbers, and how it becomes seconds of a report.

`senses.py` puts it together; what has rules of its own (clocks, bytes, faults) is pure.
"""
