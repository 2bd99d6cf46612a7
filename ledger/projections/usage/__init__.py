"""Folding usage reports: which seconds count, what they cost, and where that is booked."""
