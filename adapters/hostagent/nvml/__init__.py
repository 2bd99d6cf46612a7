"""A stand-in for NVIDIA's management library: machines without a GPU can be tested as if they had.

`stub.c` is built into a `libnvidia-ml.so.1` that the real Python binding loads. What its GPUs do,
which calls fail and which hang is read at every call from a file (`host-agent.md` §7).
"""
