"""A whole marketplace under a simulated clock: the real services, simulated hosts, no waiting."""
