"""Image registries: what a tag means at this moment."""
