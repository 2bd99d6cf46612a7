"""What computes on the GPUs for the platform's checks: challenges and benchmark runs.

A process of its own, so that neither a hung driver nor the framework's memory is the agent's, and
so that the framework may live in another Python than the agent does. That process imports nothing
but the framework, the standard library and the pure parts of `ledger.domain`.
"""
