"""Stripe as the payment processor; the only package that knows its library."""
