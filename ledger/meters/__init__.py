"""Ticks and terms in, exact charges out; pure."""
