"""What runs instances on a machine: one port, and what stands behind it."""
