"""Stripe's routes on a `StripeAccount`: parameters in, objects out, lists page by page."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.support.stripe import objects
from tests.support.stripe.account import StripeAccount, invalid, missing
from tests.support.stripe.objects import Object

_PARAMETER: Final = re.compile(r"([^\[\]]+)((?:\[[^\[\]]*\])*)")
_PART: Final = re.compile(r"\[([^\[\]]*)\]")
_PAGE: Final = 10
_PAGE_MAX: Final = 100


class Request(NamedTuple):
    """What arrived; `owner` is the connected account that it acts for."""

    method: str
    path: str
    params: Object
    owner: str | None


def parse(pairs: list[tuple[str, str]]) -> Object:
    """Stripe's form encoding: ``a[b]=c`` and ``a[0][b]=c``."""
    tree: Object = {}
    for name, value in pairs:
        found = _PARAMETER.fullmatch(name)
        if found is None:
            raise invalid("parameter_unknown", f"Received unknown parameter: {name}")
        path = [found[1], *_PART.findall(found[2])]
        here = tree
        for part in path[:-1]:
            here = here.setdefault(part, {})
        here[path[-1]] = value
    return {name: _listed(value) for name, value in tree.items()}


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {name: _listed(one) for name, one in value.items()}
    if inner and all(name.isdecimal() for name in inner):
        return [inner[name] for name in sorted(inner, key=int)]
    return inner


class Api:
    """Answers requests."""

    def __init__(self, account: StripeAccount) -> None:
        """Serve *account*."""
        self.account = account

    def answer(self, request: Request) -> Object:
        """The body of a success.

        Raises:
            StripeError: Anything else.
        """
        for method, pattern, act in _ROUTES:
            found = re.fullmatch(pattern, request.path)
            if found is not None and method == request.method:
                shown = copy.deepcopy(act(self.account, request, *found.groups()))
                self._expand(shown, request.params.get("expand", []))
                return shown
        raise invalid("url_invalid", f"Unrecognized request URL ({request.method}: {request.path})")

    def _expand(self, shown: Object, paths: list[str]) -> None:
        for path in paths:
            parts = path.split(".")
            here = shown["data"] if parts[0] == "data" else [shown]
            if parts[0] == "data":
                parts = parts[1:]
            for part in parts:
                for one in here:
                    if isinstance(one.get(part), str):
                        one[part] = copy.deepcopy(self._any(one[part]))
                here = [one[part] for one in here if isinstance(one.get(part), dict)]

    def _any(self, name: str) -> Object:
        for found in self.account.found.values():
            if name in found:
                return found[name]
        raise missing("object", name)


_Act = Callable[..., Object]


def _retrieve(kind: str) -> _Act:
    def act(account: StripeAccount, request: Request, name: str) -> Object:
        return account.get(kind, name, request.owner)

    return act


def _list(kind: str, *filters: str) -> _Act:
    def act(account: StripeAccount, request: Request) -> Object:
        params = request.params
        rows = [
            one
            for one in account.all_of(kind, request.owner)
            if all(one.get(name) == params[name] for name in filters if name in params)
            and _is_within(one["created"], params.get("created", {}))
        ]
        return _page(rows, request)

    return act


def _is_within(created: int, window: Any) -> bool:
    if isinstance(window, str):
        return created == int(window)
    tests: dict[str, Callable[[int], bool]] = {
        "gte": lambda bound: created >= bound,
        "gt": lambda bound: created > bound,
        "lte": lambda bound: created <= bound,
        "lt": lambda bound: created < bound,
    }
    return all(tests[name](int(bound)) for name, bound in window.items())


def _page(rows: list[Object], request: Request) -> Object:
    limit = int(request.params.get("limit", _PAGE))
    if not 1 <= limit <= _PAGE_MAX:
        raise invalid("parameter_invalid_integer", "limit is between 1 and 100")
    after = request.params.get("starting_after")
    if after is not None:
        names = [one["id"] for one in rows]
        if after not in names:
            raise missing("object", after)
        rows = rows[names.index(after) + 1 :]
    return {
        "object": "list",
        "data": rows[:limit],
        "has_more": len(rows) > limit,
        "url": request.path,
    }


def _attach(account: StripeAccount, request: Request, name: str) -> Object:
    if name == "pm_card_visa":
        return account.attach("4242", request.params["customer"])
    method = account.get("payment_method", name)
    method["customer"] = request.params["customer"]
    return method


def _balance(account: StripeAccount, request: Request) -> Object:
    return objects.balance(account.balance(request.owner))


def _reversals(account: StripeAccount, request: Request, name: str) -> Object:
    return _page(account.get("transfer", name)["reversals"]["data"], request)


def _link(account: StripeAccount, request: Request) -> Object:
    account.get("account", request.params["account"])
    return objects.account_link(account.clock(), request.params["account"])


_NAME: Final = "([A-Za-z0-9_]+)"
_ROUTES: Final[tuple[tuple[str, str, _Act], ...]] = (
    ("POST", "/v1/customers", lambda a, r: a.create_customer(r.params)),
    ("GET", f"/v1/customers/{_NAME}", _retrieve("customer")),
    ("GET", f"/v1/payment_methods/{_NAME}", _retrieve("payment_method")),
    ("POST", f"/v1/payment_methods/{_NAME}/attach", _attach),
    ("POST", f"/v1/payment_methods/{_NAME}/detach", lambda a, _, name: a.detach(name)),
    ("POST", "/v1/payment_intents", lambda a, r: a.create_intent(r.params)),
    ("GET", "/v1/payment_intents", _list("payment_intent", "customer")),
    ("GET", f"/v1/payment_intents/{_NAME}", _retrieve("payment_intent")),
    ("GET", f"/v1/charges/{_NAME}", _retrieve("charge")),
    ("POST", "/v1/checkout/sessions", lambda a, r: a.create_session(r.params)),
    ("GET", "/v1/checkout/sessions", _list("checkout.session", "customer", "payment_intent")),
    ("GET", f"/v1/checkout/sessions/{_NAME}", _retrieve("checkout.session")),
    ("POST", f"/v1/checkout/sessions/{_NAME}/expire", lambda a, _, name: a.expire(name)),
    ("GET", f"/v1/setup_intents/{_NAME}", _retrieve("setup_intent")),
    ("POST", "/v1/refunds", lambda a, r: a.create_refund(r.params)),
    ("GET", "/v1/refunds", _list("refund", "payment_intent", "charge")),
    ("GET", f"/v1/refunds/{_NAME}", _retrieve("refund")),
    ("GET", "/v1/disputes", _list("dispute", "payment_intent", "charge")),
    ("GET", f"/v1/disputes/{_NAME}", _retrieve("dispute")),
    ("POST", f"/v1/disputes/{_NAME}/close", lambda a, _, name: a.close_dispute(name, "lost")),
    ("POST", "/v1/accounts", lambda a, r: a.create_account(r.params)),
    ("GET", "/v1/accounts", _list("account")),
    ("GET", f"/v1/accounts/{_NAME}", _retrieve("account")),
    ("POST", "/v1/account_links", _link),
    ("POST", "/v1/transfers", lambda a, r: a.create_transfer(r.params)),
    ("GET", "/v1/transfers", _list("transfer", "transfer_group", "destination")),
    ("GET", f"/v1/transfers/{_NAME}", _retrieve("transfer")),
    (
        "POST",
        f"/v1/transfers/{_NAME}/reversals",
        lambda a, r, name: a.create_reversal(name, r.params),
    ),
    ("GET", f"/v1/transfers/{_NAME}/reversals", _reversals),
    ("POST", "/v1/payouts", lambda a, r: a.create_payout(r.params, r.owner)),
    ("GET", "/v1/payouts", _list("payout", "status")),
    ("GET", f"/v1/payouts/{_NAME}", _retrieve("payout")),
    ("GET", "/v1/balance", _balance),
    (
        "GET",
        "/v1/balance_transactions",
        _list("balance_transaction", "type", "source", "currency"),
    ),
    ("GET", f"/v1/balance_transactions/{_NAME}", _retrieve("balance_transaction")),
    ("GET", "/v1/events", _list("event", "type")),
    ("GET", f"/v1/events/{_NAME}", _retrieve("event")),
)
