"""Ssh keys that change while an instance runs: brought inside once, again after a restart."""

from __future__ import annotations

import time
from typing import Any

import pytest

from adapters.hostagent.acting.keyring import KeyRing
from adapters.hostagent.runtime.port import Found, LaunchError, RuntimeUnavailableError
from adapters.hostagent.runtime.twin import RuntimeTwin
from ledger.domain.acknowledgement import Desired, DesiredInstance

ME = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me@home"


class Bench:
    """A key ring on a twin, turned by hand, and the diary that it writes."""

    def __init__(self) -> None:
        """Begin with nothing wanted and nothing running."""
        self.twin = RuntimeTwin()
        self.noted: list[tuple[int, str]] = []
        self.ring = KeyRing(self.twin, lambda instance, text: self.noted.append((instance, text)))

    def want(self, *keys: str, instance: int = 7, **launch: Any) -> None:
        """The server wants an instance with these keys."""
        spec = {"runtype": "ssh", "ssh_keys": list(keys), **launch}
        one = DesiredInstance(instance=instance, assignment=1, want="running", spec=spec)
        self.ring.take(Desired(version=1, instances=[one]))

    def run(self, instance: int = 7, started_at: int = 100) -> None:
        """The agent sees that it runs."""
        self.ring.running([Found(f"c{instance}", instance, 1, "running", started_at=started_at)])


def test_a_key_that_is_attached_meanwhile_is_brought_inside_and_noted_once() -> None:
    """The runtime is asked when something changed only; the diary names keys as ssh does."""
    bench = Bench()
    bench.run()
    bench.ring.bring()
    assert bench.twin.keys == {}, "nothing is known of its keys"
    bench.want(ME)
    for _ in range(3):
        bench.ring.bring()
    assert bench.twin.keys == {"c7": (ME,)}
    bench.want()
    bench.ring.bring()
    assert bench.twin.keys == {"c7": ()}
    first, second = bench.noted
    assert first[0] == 7
    assert "SHA256:" in first[1]
    assert "AAAA" not in first[1]
    assert second[1].endswith(": none")


def test_after_a_restart_the_keys_are_looked_at_again() -> None:
    """Another run of the same container may have begun with older keys."""
    bench = Bench()
    bench.want(ME)
    bench.run(started_at=100)
    bench.ring.bring()
    bench.twin.keys["c7"] = ()
    bench.ring.bring()
    assert bench.twin.keys == {"c7": ()}
    bench.run(started_at=200)
    bench.ring.bring()
    assert bench.twin.keys == {"c7": (ME,)}


def test_what_is_not_got_into_by_ssh_gets_no_keys() -> None:
    """Keys of an account are with every launch; only a way in by ssh makes use of them."""
    bench = Bench()
    bench.want(ME, runtype="args")
    bench.run()
    bench.ring.bring()
    assert bench.twin.keys == {}


def test_a_runtime_that_is_away_is_asked_again() -> None:
    """Nothing counts as brought before it was."""
    bench = Bench()
    bench.want(ME)
    bench.run()
    bench.twin.is_away = True
    with pytest.raises(RuntimeUnavailableError):
        bench.ring.bring()
    bench.twin.is_away = False
    bench.ring.bring()
    assert bench.twin.keys == {"c7": (ME,)}


def test_what_the_renter_made_impossible_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The diary says why, and nothing is tried again and again."""
    bench = Bench()
    bench.want(ME)
    bench.run()

    def refuse(*_: object) -> bool:
        raise LaunchError("bad_configuration", "authorized_keys is no file")

    monkeypatch.setattr(bench.twin, "set_keys", refuse)
    bench.ring.bring()
    bench.ring.bring()
    assert bench.noted == [(7, "its ssh keys cannot be changed: authorized_keys is no file")]


def test_the_thread_brings_what_is_new() -> None:
    """From the word of the server to the runtime nothing waits for a look."""
    bench = Bench()
    bench.ring.start()
    bench.run()
    bench.want(ME)
    deadline = time.monotonic() + 5
    while bench.twin.keys != {"c7": (ME,)}:
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    bench.ring.close()
