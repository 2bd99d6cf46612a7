"""Sends what an account has to know to the addresses that it named.

`sender` decides what is sent when, `client` makes one attempt, `verify` is for receivers to copy.
"""
