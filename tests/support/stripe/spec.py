"""Are the stand-in's objects those that Stripe describes? Checked against its OpenAPI document.

    python -m tests.support.stripe.spec spec3.json

A short life of a platform is played; every object that it leaves, and every answer to a list, is
checked field by field: required fields, types, enumerations, and fields that nobody describes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.support.stripe import objects
from tests.support.stripe.account import StripeAccount, StripeError
from tests.support.stripe.api import Api, Request
from tests.support.stripe.objects import Object

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


class Description:
    """An OpenAPI document; `differences` says how a value is not what a schema says."""

    def __init__(self, document: Object) -> None:
        """Read its schemas."""
        self._schemas: Object = document["components"]["schemas"]

    def named(self, kind: str) -> Object:
        """The schema of a kind of object."""
        found: Object = self._schemas[kind]
        return found

    def differences(self, value: Any, schema: Object, where: str) -> Iterator[str]:
        """Every way in which *value* is not what *schema* says."""
        if "$ref" in schema:
            schema = self.named(schema["$ref"].rpartition("/")[2])
        if value is None:
            if not schema.get("nullable"):
                yield f"{where} is null"
            return
        if "anyOf" in schema:
            yield from self._any_of(value, schema["anyOf"], where)
            return
        kind = schema.get("type")
        if kind is not None and not _is(value, kind):
            yield f"{where} is {type(value).__name__} and not {kind}"
            return
        if "enum" in schema and value not in schema["enum"]:
            yield f"{where} is {value!r}, and not one of {schema['enum']}"
        if isinstance(value, list):
            for number, one in enumerate(value):
                yield from self.differences(one, schema.get("items", {}), f"{where}[{number}]")
        if isinstance(value, dict):
            yield from self._object(value, schema, where)

    def _any_of(self, value: Any, choices: list[Object], where: str) -> Iterator[str]:
        found = [list(self.differences(value, one, where)) for one in choices]
        if all(found):
            yield from min(found, key=len)

    def _object(self, value: Object, schema: Object, where: str) -> Iterator[str]:
        known = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in value:
                yield f"{where}.{name} is missing"
        for name, one in value.items():
            if name in known:
                yield from self.differences(one, known[name], f"{where}.{name}")
            elif known and "additionalProperties" not in schema:
                yield f"{where}.{name} is described by nobody"


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def played() -> StripeAccount:
    """A platform after a short life in which everything happened once."""
    account = StripeAccount(lambda: 1_772_323_200)
    customer = account.create_customer({"metadata": {"a": "b"}})["id"]
    setup = account.create_session({"mode": "setup", "customer": customer})
    account.complete(setup["id"])
    bad = account.attach("0002", customer)["id"]
    order = {"amount": "5000", "currency": "usd", "customer": customer, "confirm": "true"}
    for _ in range(2):
        try:
            account.create_intent({**order, "payment_method": bad})
        except StripeError:
            continue
    price = {"unit_amount": "100000", "currency": "usd", "product_data": {"name": "Credit"}}
    items = [{"quantity": "1", "price_data": price}]
    page = account.create_session({"mode": "payment", "customer": customer, "line_items": items})
    account.complete(page["id"])
    late = account.create_session({"mode": "payment", "customer": customer, "line_items": items})
    account.expire(late["id"])
    paid = account.get("checkout.session", page["id"])["payment_intent"]
    account.create_refund({"payment_intent": paid, "amount": "100"})
    account.fail_refund(account.create_refund({"payment_intent": paid, "amount": "100"})["id"])
    account.close_dispute(account.open_dispute(paid, 120_000)["id"], "won")
    host = account.create_account({"country": "US"})["id"]
    account.onboard(host)
    moved = account.create_transfer({"amount": "5000", "currency": "usd", "destination": host})
    account.create_reversal(moved["id"], {"amount": "1000"})
    for status in ("paid", "failed"):
        sent = account.create_payout({"amount": "1000", "currency": "usd"}, host)
        account.bank_says(sent["id"], status)
    account.take_fee(25)
    return account


def check(description: Description) -> list[str]:
    """Every difference, of every object that a life leaves and of the answers that have no name."""
    account = played()
    found: list[str] = []
    count = 0
    for kind, kept in account.found.items():
        for one in kept.values():
            count += 1
            found += description.differences(one, description.named(kind), kind)
    nameless = [
        ("balance", objects.balance(5)),
        ("account_link", objects.account_link(1, "acct_1")),
        ("error", StripeError(402, "card_error", "card_declined", "No.").body),
    ]
    for kind, one in nameless:
        count += 1
        found += description.differences(one, description.named(kind), kind)
    page = Api(account).answer(Request("GET", "/v1/refunds", {"limit": "1"}, None))
    assert page.keys() == {"object", "data", "has_more", "url"}, page
    sys.stdout.write(f"{count} objects of {len(account.found) + len(nameless)} kinds checked\n")
    return sorted(set(found))


def main() -> int:
    """Check against the document that the command line names; 1 when anything differs."""
    document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = check(Description(document))
    for one in found:
        sys.stdout.write(f"  {one}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
