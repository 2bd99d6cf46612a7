"""What the GPUs say: read through NVML in a process of its own, because a driver can hang.

`child.py` is that process, `supervisor.py` watches it from the agent, `twin.py` stands in for both.
"""
