import hashlib
import stat
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from adapters.hostagent.identity import HostIdentity
from ledger.errors import ConflictError, RejectedError


def test_a_signature_covers_the_prefix_and_the_body() -> None:
    """The public key verifies the prefix followed by the body, and nothing else."""
    identity = HostIdentity.generate()
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(identity.public_key_hex))
    signature = identity.sign(b"body")
    key.verify(signature, b"ledger.usage-report.v1\x00body")
    with pytest.raises(InvalidSignature):
        key.verify(signature, b"body")


def test_the_key_id_is_the_start_of_the_hash_of_the_raw_key() -> None:
    """A key id is the first 16 hex digits of SHA-256 of the 32 public bytes."""
    identity = HostIdentity.generate()
    assert identity.key_id == hashlib.sha256(identity.public_key).hexdigest()[:16]


def test_a_saved_key_is_private_and_comes_back(tmp_path: Path) -> None:
    """A key file has mode 0600 and holds the same key."""
    path = tmp_path / "host.key"
    identity = HostIdentity.generate()
    identity.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert HostIdentity.load(path).public_key == identity.public_key


def test_an_existing_key_is_never_overwritten(tmp_path: Path) -> None:
    """Saving over a key is refused and leaves the old one."""
    path = tmp_path / "host.key"
    first = HostIdentity.generate()
    first.save(path)
    with pytest.raises(ConflictError, match="exists"):
        HostIdentity.generate().save(path)
    assert HostIdentity.load(path).key_id == first.key_id


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """A key file with wider permissions than its owner's is not loaded."""
    path = tmp_path / "host.key"
    HostIdentity.generate().save(path)
    path.chmod(0o640)
    with pytest.raises(RejectedError) as refused:
        HostIdentity.load(path)
    assert refused.value.code == "key_not_private"


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    """A file that holds something else is not taken for a key."""
    path = tmp_path / "host.key"
    path.write_bytes(b"not a key")
    path.chmod(0o600)
    with pytest.raises(RejectedError) as refused:
        HostIdentity.load(path)
    assert refused.value.code == "bad_key"


def test_a_seed_gives_the_same_key_every_time() -> None:
    """Two identities of one seed sign alike."""
    seed = bytes(range(32))
    assert HostIdentity.from_seed(seed).sign(b"x") == HostIdentity.from_seed(seed).sign(b"x")
