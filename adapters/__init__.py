"""What talks to the world: HTTP, the host agent, the command line.

Adapters feed facts in and ask questions; the rules are in `ledger`.
"""
