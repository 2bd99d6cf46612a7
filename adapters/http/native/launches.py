"""What an instance is started with, and what an account demands of the machines it rents."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from litestar import Request, Response, get, put
from litestar.datastructures import State
from litestar.params import FromPath, JSONBody

from adapters.http.call import ANYONE, RENTER, Caller, allowed
from adapters.http.native.accounts import AccountFilter
from adapters.http.native.instances import Instance, shown
from adapters.http.native.own import require_own, visible
from adapters.http.native.renting import ask_registry
from adapters.http.wire import Body, Id, Instant, render
from ledger.domain.launch import Args, Env, Image, LaunchChange, LaunchConfig
from ledger.errors import RejectedError
from ledger.services import launch_policies, rentals
from ledger.services.ledger import Unit
from ledger.services.questions import launches as ask
from ledger.store.database import Connection


class NewLaunch(Body):
    """What to change; what is null stays. An empty `onstart` starts nothing."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "image": "pytorch/pytorch:2.9",
        "env": {"BATCH": "64"},
        "onstart": "python train.py",
    }

    image: Image | None = None
    env: Env | None = None
    """The whole environment, in place of the old one."""
    onstart: str | None = None
    args: Args | None = None


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance is started with.

    `config` is there for the renter, and for the machine's host while the instance lives; to the
    host it has the instance's id and API key in its environment, as `GPULEDGER_INSTANCE_ID` and
    `GPULEDGER_API_KEY`. Auditors and admins see references and hashes alone.
    """

    instance_id: int
    reference: str | None
    launch_hash: str | None
    image_digest: str | None
    template_id: int | None
    template_hash: str | None
    changed_at: Instant | None
    config: LaunchConfig | None
    ssh_keys: list[str]


class NewLaunchPolicy(Body):
    """With `secure_only`, a create on a machine outside the secure tier is refused."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"secure_only": True}

    secure_only: bool
    account_id: Id | None = None


class LaunchPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What an account demands of machines."""

    account_id: int
    secure_only: bool


@get("/v1/instances/{instance_id:int}/launch", opt=allowed(*ANYONE), summary="Show a launch")
async def show_launch(call: Caller, instance_id: FromPath[int]) -> Launch:
    """Show what an instance is started with.

    The contents are for its renter and its machine's host alone; auditors and admins see the
    reference and the keyed hash.
    """
    found = await visible(call, instance_id)
    me, role, vault = call.principal.account_id, call.principal.role, call.ledger.vault
    is_renter = role != "host" and found.account_id == me
    is_host = role == "host" and found.host_id == me and found.destroyed_at is None

    def run(connection: Connection) -> ask.LaunchView:
        return ask.launch(
            connection, vault, instance_id, contents=is_renter or is_host, for_host=is_host
        )

    return render(Launch, await call.question(run))


@put("/v1/instances/{instance_id:int}/launch", opt=allowed(*RENTER), summary="Change a launch")
async def change_launch(
    request: Request[Any, Any, State],
    call: Caller,
    instance_id: FromPath[int],
    data: JSONBody[NewLaunch],
) -> Response[Instance]:
    """Give it another image, environment, start text or arguments, from its next start on.

    Price, size and kind never change by this.
    """
    given = {
        name: value
        for name in ("image", "env", "onstart", "args")
        if (value := getattr(data, name)) is not None
    }
    if not given:
        message = "name what to change: image, env, onstart or args"
        raise RejectedError("invalid_args", message, status=400)
    wish = LaunchChange(**given)
    image = LaunchConfig(image=data.image)
    resolved = await ask_registry(request, call, call.principal.account_id, image)

    def do(unit: Unit) -> Instance:
        require_own(call, unit, instance_id)
        rentals.change_launch(unit, instance_id, wish, resolved)
        return shown(unit, instance_id)

    return await call.command(do)


@get("/v1/launch-policy", opt=allowed(*ANYONE), summary="Launch policy")
async def show_policy(call: Caller, account_id: AccountFilter = None) -> LaunchPolicy:
    """Show what an account demands of the machines it rents."""
    account = call.view(account_id) or call.principal.account_id
    secure = await call.question(
        lambda connection: launch_policies.demands_secure(connection, account)
    )
    return LaunchPolicy(account_id=account, secure_only=secure)


@put("/v1/launch-policy", opt=allowed(*RENTER), summary="Set the launch policy")
async def set_policy(call: Caller, data: JSONBody[NewLaunchPolicy]) -> Response[LaunchPolicy]:
    """Demand the secure tier, or not; what runs elsewhere goes on."""
    account = call.account(data.account_id)

    def do(unit: Unit) -> LaunchPolicy:
        launch_policies.set_policy(unit, account, secure_only=data.secure_only)
        return LaunchPolicy(account_id=account, secure_only=data.secure_only)

    return await call.command(do)


HANDLERS = [show_launch, change_launch, show_policy, set_policy]
