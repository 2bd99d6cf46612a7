"""The texts of messages: plain, and each says what happened, what it costs, and what to do.

`$object`, `$label`, `$at`, `$available`, `$burn`, `$runway`, `$now`, and the fields of the event's
data (`$status`, `$until` and others) are put in by `messages`.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Text(NamedTuple):
    """A message: its subject, and its three paragraphs."""

    subject: str
    happened: str
    costs: str
    do: str


CREDIT: Final = "Your credit is $$$available at $now; $$$burn an hour burns: $runway."
STORAGE: Final = (
    "A stopped instance costs no GPU time. Its disk costs storage until it is destroyed."
)
NOTHING: Final = "This costs nothing."
FOOTER: Final = (
    "--\nEvent $event for account $account. Which of these messages you get, or none, is your"
    " choice:\nPUT /v1/mail (codes), or DELETE /v1/mail to get none."
)
DEFAULT: Final = Text(
    "$code: $object",
    "At $at there was a notice for you: $code, about $object$label.",
    CREDIT,
    "Look at it with GET /v1/notices.",
)


def _low(hours: str) -> Text:
    return Text(
        f"Credit for less than {hours}",
        f"At $at your credit was enough for less than {hours} at what runs now.",
        CREDIT,
        "Buy credit, or stop or destroy what you do not need. At zero, all instances stop.",
    )


def _budget(percent: str) -> Text:
    return Text(
        f"Budget at {percent} %: $object",
        f"At $at what carries the $object had cost {percent} % of this month's budget, or more.",
        "A budget stops nothing: what runs goes on and costs what it costs. " + CREDIT,
        "See GET /v1/charges/by-label. Stop what should not go on, or set another budget.",
    )


_START: Final = "Nothing is to be done. Stop it when it is no longer needed."
TEXTS: Final[dict[str, Text]] = {
    "low_balance_24h": _low("24 hours"),
    "low_balance_4h": _low("4 hours"),
    "low_balance_1h": _low("1 hour"),
    "top_up_soon": Text(
        "An automatic top-up comes soon",
        "At $at your credit came near the limit below which your card is charged.",
        "The charge is what you agreed to. " + CREDIT,
        "Nothing is to be done. To prevent it, buy credit now or withdraw your consent.",
    ),
    "top_up_failed": Text(
        "An automatic top-up failed",
        "At $at charging your card failed. It is tried again, not before an hour has passed.",
        "Nothing was charged. " + CREDIT,
        "Check your card, or buy credit another way before it runs out.",
    ),
    "top_up_off": Text(
        "Automatic top-ups are off",
        "At $at charging your card had failed three times in a row. It is not tried again.",
        "Nothing was charged. " + CREDIT,
        "Check your card and consent anew, or buy credit another way.",
    ),
    "exhausted": Text(
        "No credit left: everything was stopped",
        "At $at your credit was used up and all your instances were stopped.",
        "Their disks still cost storage, which becomes a debt. " + CREDIT,
        "Buy credit and start again what you need; nothing starts by itself. Destroy the rest.",
    ),
    "storage_debt": Text(
        "Your storage is about to be destroyed",
        "At $at what your disks cost without credit had reached its limit.",
        CREDIT + " 72 hours after the first such message everything is destroyed.",
        "Buy credit now, or save what you need and destroy the rest.",
    ),
    "spend_cap": Text(
        "The cap of the day is reached",
        "At $at today's charges had reached the cap that you set.",
        "With a hard cap everything was stopped; else it goes on. " + CREDIT,
        "Look at what runs; raise the cap, or wait for tomorrow (UTC).",
    ),
    "outbid": Text(
        "Outbid: $object waits",
        "At $at $object$label lost its GPUs to a higher bid. It resumes by itself.",
        STORAGE,
        "Bid more to run sooner (PUT /v1/instances/{id}/bid), wait, or destroy it.",
    ),
    "resumed": Text(
        "$object runs again",
        "At $at $object$label got its GPUs back.",
        "GPU time is charged again from the moment its container runs. " + CREDIT,
        _START,
    ),
    "created": Text(
        "$object was created",
        "At $at $object$label was created.",
        "Its disk costs storage from now on, its GPUs from the moment the container runs.",
        "Nothing is to be done. Destroy it when it is no longer needed.",
    ),
    "started": Text(
        "$object runs",
        "At $at the container of $object$label ran for the first time.",
        "GPU time is charged since then. " + CREDIT,
        _START,
    ),
    "stopped": Text(
        "$object stopped",
        "At $at $object$label stopped. Reason: $reason.",
        STORAGE,
        "Start it again, or destroy it to end its storage.",
    ),
    "destroyed": Text(
        "$object was destroyed",
        "At $at $object$label was destroyed, and its disk with it.",
        "It costs nothing any more.",
        "Nothing is to be done.",
    ),
    "offline": Text(
        "The machine of $object is silent",
        "At $at nothing was heard any more of the machine of $object$label.",
        "Seconds that the machine does not attest cost nothing, neither GPUs nor storage.",
        "Wait, or rent elsewhere. You are told when it is back.",
    ),
    "online": Text(
        "The machine of $object is back",
        "At $at the machine of $object$label was heard again.",
        "What runs on it is charged again. " + CREDIT,
        "Look whether your work goes on; state now: $status.",
    ),
    "error": Text(
        "$object failed",
        "At $at $object$label was stopped by a fault of its host. Reason: $reason.",
        STORAGE,
        "Start it again or rent elsewhere. Dispute what you were charged without use.",
    ),
    "disk_high": Text(
        "The disk of $object is nearly full",
        "At $at the disk of $object$label was 90 % full.",
        "A full disk costs the same as an empty one: what you asked for.",
        "Delete what is not needed, or move it away.",
    ),
    "disk_critical": Text(
        "The disk of $object is full",
        "At $at the disk of $object$label was 98 % full: writing will fail.",
        "A full disk costs the same as an empty one: what you asked for.",
        "Delete or move files now.",
    ),
    "idle": Text(
        "$object does nothing",
        "At $at the GPUs of $object$label had been idle for long.",
        "An idle GPU costs the same as a busy one. " + CREDIT,
        "Stop it if its work is done, or let idle instances stop by themselves.",
    ),
    "maintenance": Text(
        "Maintenance is announced",
        "At $at maintenance was announced that concerns $object$label.",
        "Seconds in which the machine is down cost nothing.",
        "Save your work before; GET /v1/maintenance says when it is.",
    ),
    "expiring": Text(
        "$object ends soon",
        "$object$label ends at $until. Then it stops for good.",
        "After its end the disk still costs storage until it is destroyed.",
        "Save what you need. If its host extends the offer you are told.",
    ),
    "expired": Text(
        "$object ended",
        "At $at the contract of $object$label ended, and it stopped.",
        "Its disk costs storage until it is destroyed; the host may do that after 48 hours.",
        "Save what you need and destroy it.",
    ),
    "extended": Text(
        "$object goes on",
        "At $at the end of $object$label was moved to $until.",
        "It costs what it cost before, until you agree to something else.",
        "Nothing is to be done.",
    ),
    "price_increase": Text(
        "A new price for $object",
        "At $at the host asked for a higher price for $object$label after its present end.",
        "Until then it costs what it cost before, whatever you answer.",
        "Accept or reject it: GET /v1/price-increases.",
    ),
    "lost_disk": Text(
        "The disk of $object is gone",
        "At $at the host reported that the disk of $object$label was lost.",
        "No storage is charged from then on. A reservation can be returned without loss.",
        "Start it with an empty disk, rent elsewhere, or open a dispute.",
    ),
    "deverified": Text(
        "$object is no longer verified",
        "At $at $object lost its verification. GET /v1/machines/{id} says why.",
        NOTHING + " Fewer renters will find it.",
        "Mend what its checks found; it is verified again by itself.",
    ),
    "verified": Text(
        "$object is verified",
        "At $at $object was verified.",
        NOTHING,
        "Nothing is to be done.",
    ),
    "secure_lapsed": Text(
        "The secure tier of $object lapsed",
        "At $at a paper that the secure tier needs had run out for $object.",
        NOTHING + " Renters who ask for the secure tier will not find it.",
        "Hand in the new paper.",
    ),
    "cleanup_soon": Text(
        "$object will be destroyed in 24 hours",
        "At $at $object$label was stopped for longer than your clean-up policy allows.",
        "Its disk costs storage until then.",
        "Start it, or change its label or the policy, to keep it. Else nothing is to be done.",
    ),
    "disputed": Text(
        "A dispute was opened: $object",
        "At $at a renter disputed charges: $object. Your share of them is held.",
        "Nothing is lost yet. Silence for 72 hours counts as agreement.",
        "Answer it: POST /v1/disputes/{id}/answer.",
    ),
    "dispute_resolved": Text(
        "Decided: $object",
        "At $at $object was decided.",
        "What was upheld went back to the renter; the rest of what was held was released.",
        "GET /v1/disputes/{id} says why.",
    ),
    "receipt": Text(
        "Receipt $object: $$$total",
        "At $at you bought credit: $$$net and $$$tax tax. The tax invoice $object is attached.",
        CREDIT,
        "Nothing is to be done. Keep it for your books.",
    ),
    "invoice": Text(
        "Invoice $object: $$$total",
        "At $at the usage invoice $object was issued. It is attached.",
        "What credit covered is paid; $$$due is due, and the next credit settles it. " + CREDIT,
        "Nothing is to be done unless something is due: buy credit then.",
    ),
    "credit_note": Text(
        "Credit note $object: $$$total",
        "At $at $$$total of $document was credited. Reason: $reason. The note is attached.",
        CREDIT,
        "Nothing is to be done. Keep it for your books.",
    ),
    "self_billing": Text(
        "Self-billing $object: $$$total",
        "At $at the statement of what you earned, $object, was issued. It is attached.",
        "It costs nothing; what you earned is paid out on a Friday.",
        "Check it against GET /v1/earnings; if it is wrong, say so.",
    ),
    "payment_failed": Text(
        "A payment failed",
        "At $at $object did not go through. Reason: $reason.",
        "Nothing was charged. " + CREDIT,
        "Try again, with another card if need be.",
    ),
    "chargeback": Text(
        "Your bank took a payment back",
        "At $at your bank disputed $$$amount of $object. Reason: $reason.",
        "What it took is no credit any more until it is decided. " + CREDIT,
        "If you did not ask for this, tell your bank; else buy credit another way.",
    ),
    "payout_paid": Text(
        "Paid out: $$$amount",
        "At $at $object was paid to your account.",
        NOTHING,
        "Nothing is to be done. Your bank may take days to show it.",
    ),
    "payout_failed": Text(
        "A payout failed",
        "At $at $object over $$$amount came back. Reason: $reason.",
        "Nothing is lost: it is owed to you again.",
        "Check your payout account: GET /v1/payout-account. It is tried again on a Friday.",
    ),
    "budget_80": _budget("80"),
    "budget_100": _budget("100"),
}
