"""How an instance is reached, as far as its host has said so."""

from __future__ import annotations

from adapters.http.vast.wire import Json
from ledger.services.questions.fleet import Rented

_NONE = -1


def connection_columns(view: Rented) -> Json:
    """Addresses and ports; none is null, as clients cut and count them."""
    del view  # no host says yet where its containers are reached
    return {
        "ssh_host": "",
        "ssh_port": 0,
        "ssh_idx": "",
        "machine_dir_ssh_port": 0,
        "public_ipaddr": "",
        "local_ipaddrs": "",
        "ports": {},
        "direct_port_start": _NONE,
        "direct_port_end": _NONE,
        "direct_port_count": _NONE,
    }
