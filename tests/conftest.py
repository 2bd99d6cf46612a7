"""What all tests share: the depth of the property tests."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("gpuledger", max_examples=60, deadline=None, print_blob=True)
settings.load_profile("gpuledger")
