"""The native API under /v1, one file per subject."""
