"""What these clients can ask for and this market has not got: refused in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from adapters.http.vast.call import ANYONE, Caller, endpoint
from adapters.http.vast.errors import unsupported

_ANY: Final = "GET POST PUT DELETE"
_SERVERLESS: Final = "there are no serverless endpoints here: rent instances with `create instance`"
_DEPLOYMENTS: Final = "there are no deployments here: rent instances with `create instance`"
_TEAMS: Final = "there are no teams here: give each person an account and transfer credit to it"
_TFA: Final = (
    "two-factor login belongs to the web page of a market; here a key is all there is:"
    " `create api-key`, `reset api-key`"
)
_COPY: Final = (
    "the platform does not reach into instances: copy with scp or rclone over ssh, as"
    " `scp-url` shows"
)
_EXECUTE: Final = "the platform does not run commands in instances: use ssh, as `ssh-url` shows"
_SNAPSHOT: Final = (
    "the platform keeps no images of instances: push one from inside with docker or"
    " your registry's client"
)
_BENCHMARKS: Final = (
    "benchmarks are runs that the platform issues; their scores are the columns"
    " `dlperf` and `score_raw` of `search offers`"
)
_CLUSTERS: Final = "machines here stand alone: rent a slice of one machine with `num_gpus`"
_NETWORK_DISKS: Final = "disks here belong to one machine: rent an instance with a larger `--disk`"
_SUBACCOUNTS: Final = "an account here has none: give each person an account of their own"
_DEFJOB: Final = (
    "machines here run no job of the host's between rentals: set a floor with"
    " `set min-bid` so that cheap bids fill them"
)
_HISTORY: Final = "past market prices are not kept: `show gpu-metrics` shows the present ones"

_REFUSED: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    _EXECUTE: (("PUT", "/v0/instances/command/{instance_id:int}"),),
    _SNAPSHOT: (
        ("POST", "/v0/instances/take_snapshot/{instance_id:int}"),
        ("GET", "/v0/instance_backups"),
        ("GET", "/v0/instance_backups/{instance_id:int}/download"),
    ),
    _COPY: (
        ("PUT DELETE", "/v0/commands/copy_direct"),
        ("PUT", "/v0/commands/rsync"),
        ("POST DELETE", "/v0/commands/rclone"),
        ("GET", "/v0/users/cloud_integrations"),
    ),
    _TFA: (
        ("GET", "/v0/tfa/status"),
        ("POST DELETE", "/v0/tfa"),
        *(
            (_ANY, f"/v0/tfa/{one}")
            for one in (
                *("confirm-new", "sms", "email", "totp-setup", "regen-backup-codes", "update"),
                "authorize-new-method",
            )
        ),
        ("POST", "/v0/tfa/sms/resend"),
    ),
    _HISTORY: (
        ("GET", "/v0/metrics/gpu/history"),
        ("GET", "/v0/metrics/gpu/locations"),
    ),
    _BENCHMARKS: (("GET", "/v0/benchmarks"),),
    _CLUSTERS: (
        ("GET", "/v0/clusters"),
        ("POST PUT DELETE", "/v0/cluster"),
        ("DELETE", "/v0/cluster/remove_machine"),
        (_ANY, "/v0/overlay"),
    ),
    _NETWORK_DISKS: (
        ("PUT POST", "/v0/network_volumes"),
        ("POST", "/v0/network_volumes/search"),
        ("POST", "/v0/network_volumes/unlist"),
        ("GET POST", "/v0/network_disk"),
    ),
    _SERVERLESS: (
        *(("GET POST", f"/v0/{one}") for one in ("endptjobs", "autojobs")),
        *(("PUT DELETE", f"/v0/{one}/{{job_id:int}}") for one in ("endptjobs", "autojobs")),
    ),
    _DEPLOYMENTS: (
        ("GET DELETE", "/v0/deployments"),
        ("GET DELETE", "/v0/deployment/{deployment_id:int}"),
        ("GET", "/v0/deployment/{deployment_id:int}/versions"),
        ("POST", "/v0/deployment/{deployment_id:int}/stop"),
        ("POST", "/v0/deployment/{deployment_id:int}/start"),
    ),
    _TEAMS: (
        ("POST DELETE", "/v0/team"),
        ("GET", "/v0/team/members"),
        ("DELETE", "/v0/team/members/{member_id:int}"),
        ("POST", "/v0/team/invite"),
        ("POST", "/v0/team/roles"),
        ("GET", "/v0/team/roles-full"),
        ("GET PUT DELETE", "/v0/team/roles/{role:str}"),
    ),
    _SUBACCOUNTS: (("POST", "/v0/users"),),
    _DEFJOB: (
        ("PUT", "/v0/machines/create_bids"),
        ("DELETE", "/v0/machines/{machine_id:int}/defjob"),
    ),
}
"""Why, and what to use instead → methods and paths. What comes to be served leaves this table."""


def _refusing(message: str, method: str, path: str) -> Any:
    @endpoint(method, path, roles=ANYONE, needs=())
    async def refuse(call: Caller) -> None:
        del call
        raise unsupported(message)

    return refuse


ENDPOINTS: Sequence[Any] = [
    _refusing(message, method, path)
    for message, routes in _REFUSED.items()
    for methods, path in routes
    for method in methods.split()
]
