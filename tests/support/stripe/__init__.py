"""A stand-in for Stripe: stateful, over HTTP on loopback, spoken to by Stripe's own library.

`objects` has the shapes, `account` what Stripe knows and does, `api` its routes, `server` HTTP with
idempotency keys and faults, `messages` signed webhooks, `spec` the check against the published
description of the API (`make stripe-spec`).
"""
