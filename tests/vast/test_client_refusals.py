"""The real client asking for what this market has not got: it prints what to use instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.support.market import Market
from tests.vast.conftest import Person, good_machine
from tests.vast.drives import drives
from tests.vast.loopback import Loopback

_GRANTS: Final = "GRANTS"
_ROLE: Final = ("--name", "n", "--permissions", _GRANTS)
_PRICES: Final = ("--price_gpu", "1", "--price_inetu", "1", "--price_inetd", "1", "--image", "i")
_CLOUD: Final = ("--src", "/a", "--dst", "/b", "--instance", "1", "--connection", "1")
_USER: Final = ("--email", "a@b.c", "--username", "u", "--password", "p", "--type", "host")
Words = dict[str, tuple[str, ...]]
INSTEAD: Final[dict[str, Words]] = {
    "use ssh, as `ssh-url` shows": {"execute": ("1", "ls")},
    "copy with scp or rclone over ssh": {
        "copy": ("1:/a", "2:/b"),
        "cancel copy": ("1",),
        "cancel sync": ("1",),
        "cloud copy": (*_CLOUD, "--transfer", "Instance-To-Cloud"),
        "show connections": (),
    },
    "push one from inside with docker": {
        "take snapshot": (
            *("1", "--repo", "r", "--docker_login_user", "u", "--docker_login_pass", "p"),
        ),
        "show instance-backups": (),
        "show instance-backup-files": ("1",),
    },
    "rent an instance with a larger `--disk`": {
        "search network-volumes": ("disk_space>1",),
        "create network-volume": ("1",),
        "list network-volume": ("1",),
        "unlist network-volume": ("1",),
        "show network-disks": (),
        "add network-disk": ("1", "/mnt"),
    },
    "give each person an account and transfer credit": {
        "create team": ("--team-name", "t"),
        "destroy team": (),
        "show members": (),
        "invite member": ("--email", "a@b.c", "--role", "r"),
        "remove member": ("1",),
        "create team-role": _ROLE,
        "show team-role": ("n",),
        "show team-roles": (),
        "update team-role": ("1", *_ROLE),
        "remove team-role": ("n",),
    },
    "rent instances with `create instance`": {
        "create endpoint": ("--endpoint_name", "e"),
        "show endpoints": (),
        "update endpoint": ("1", "--endpoint_name", "e"),
        "delete endpoint": ("1",),
        "show workergroups": (),
        "update workergroup": ("1", "--endpoint_id", "1"),
        "delete workergroup": ("1",),
        "show deployments": (),
        "show deployment": ("1",),
        "show deployment-versions": ("1",),
        "stop deployment": ("1",),
        "start deployment": ("1",),
        "delete deployment": ("1",),
    },
    "columns `dlperf` and `score_raw` of `search offers`": {"search benchmarks": ()},
    "`show gpu-metrics` shows the present ones": {
        "show gpu-trends": (),
        "show gpu-locations": (),
    },
    "here a key is all there is": {
        "tfa status": (),
        "tfa activate": ("123", "--method-type", "totp", "--secret", "s"),
        "tfa delete": ("--code", "123", "--id-to-delete", "1"),
        "tfa login": ("--code", "123"),
        "tfa resend-sms": ("--secret", "s"),
        "tfa regen-codes": ("--code", "123"),
        "tfa send-sms": (),
        "tfa send-email": (),
        "tfa auth-new": ("--code", "1"),
        "tfa totp-setup": (),
        "tfa update": ("1", "--label", "x"),
    },
    "set a floor with `set min-bid`": {"set defjob": ("1", *_PRICES), "remove defjob": ("1",)},
}
"""What the answer says to use → commands and their further words."""
HIDDEN: Final[Words] = {
    "create subaccount": _USER,
    "create workergroup": ("--template_hash", "x", "--endpoint_name", "e"),
    "run benchmarks": ("--template_hash", "no-such"),
}
"""Commands of which the client itself keeps the text back that it is answered with."""


@drives(*(command for commands in INSTEAD.values() for command in commands), *HIDDEN)
def test_refusals_say_what_to_use(
    market: Market, loopback: Loopback, person: Person, tmp_path: Path
) -> None:
    """C30: each asks the server once, prints its text, and leaves no fact in the ledger."""
    good_machine(market)
    alice = person("alice", "renter")
    grants = tmp_path / "permissions.json"
    grants.write_text(json.dumps({"api": {"instance_read": {}}}))
    head = market.head()

    def asked(command: str, words: tuple[str, ...]) -> str:
        loopback.requests()
        given = (str(grants) if word is _GRANTS else word for word in words)
        printed = alice(*command.split(), *given, stdin="y\n")
        assert len(loopback.requests()) == 1, (command, printed)
        return printed.out + printed.err

    for instead, commands in INSTEAD.items():
        for command, words in commands.items():
            assert instead in asked(command, words), command
    for command, words in HIDDEN.items():
        printed = asked(command, words)
        assert "400 Client Error" in printed or "template not found" in printed, command
    assert market.head() == head
