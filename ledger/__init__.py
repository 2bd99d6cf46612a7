"""The core of gpuledger: facts, prices, the event log and what is read from it.

Start at `ledger.domain` for the rules, `ledger.store` for the log and `ledger.services` for the
use cases.
"""
