"""The suite that computes for the platform's checks."""
