"""`gpuledger`: its commands, and how a mistake ends: in one line, with a code, without a traceback.

Each command imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NoReturn

from cyclopts import App, CycloptsError, Group

from adapters.cli import (
    agent,
    books,
    calc,
    documents,
    grants,
    keys,
    money,
    offers,
    payments,
    questions,
    reconciling,
    running,
    supervising,
    timelines,
    usage,
)
from ledger.errors import CorruptHistoryError, LedgerError, RejectedError

OK: Final = 0
FAILED: Final = 1
"""A check failed, a rule said no, or there is no such thing."""
WRONG_USAGE: Final = 2
"""What was typed, or a file that was given, is not valid."""
INTERRUPTED: Final = 130

_DEBUG: Final = "GPULEDGER_DEBUG"
_HINTS: Final = {
    "no_such_instance": "`gpuledger instances` lists them",
    "no_such_volume": "`gpuledger volumes` lists them",
    "no_such_machine": "`gpuledger machines` lists them",
    "no_such_invoice": "`gpuledger invoice` lists them",
    "no_such_payment": "`gpuledger payments list` lists them",
    "no_such_finding": "`gpuledger findings list` lists them",
    "no_such_key": "`gpuledger keys list` lists them",
    "database_unavailable": "check that it runs and what GPULEDGER_DATABASE_URL says",
    "vault_key_wrong": "give the --home, or set the GPULEDGER_VAULT_KEY, that made this ledger",
}
_EPILOGUE: Final = (
    "Every question takes --json. Exit codes: 0 done, 1 a check failed, refused or not found,"
    " 2 wrong usage or invalid input. --debug, or GPULEDGER_DEBUG=1, shows where an error arose."
)


def _version() -> str:
    try:
        return version("gpuledger")
    except PackageNotFoundError:
        return "not installed"


_RUN: Final = Group("Run and prove", sort_key=0)
_ASK: Final = Group("Ask", sort_key=1)
_WRITE: Final = Group("Write", sort_key=2)

app = App(
    name="gpuledger",
    help="Billing and ledger core of a GPU rental marketplace: per-second metering, double entry,"
    " provable replay.\n\nStart with `gpuledger demo`, or `gpuledger serve`.",
    help_epilogue=_EPILOGUE,
    version=_version,
    suppress_keyboard_interrupt=False,
)
keys_app = App(name="keys", help="API keys: create, list, revoke.", group=_WRITE)
keys_app.command(keys.create)
keys_app.command(keys.listed, name="list")
keys_app.command(keys.revoke)
calc_app = App(name="calc", help="Estimates: cost, memory, transfer, budget.", group=_ASK)
calc_app.command(calc.useful_hour, name="useful-hour")
calc_app.command(calc.memory)
calc_app.command(calc.transfer)
calc_app.command(calc.budget)
agent_app = App(name="agent", help="The agent on a rented-out machine.", group=_RUN)
agent_app.command(agent.enrol)
agent_app.command(agent.run)
agent_app.command(agent.status)
agent_app.command(agent.inventory)
agent_app.command(agent.doctor)
agent_app.command(agent.logs)
agent_app.command(agent.release_nvml, name="release-nvml")
agent_app.command(agent.acquire_nvml, name="acquire-nvml")
payments_app = App(name="payments", help="Payments by card: list, show, resync.", group=_ASK)
payments_app.command(payments.listed, name="list")
payments_app.command(payments.show)
payments_app.command(payments.resync)
books_app = App(
    name="books", help="The books: journals, balances, lines as of any instant.", group=_ASK
)
books_app.command(books.export)
books_app.command(books.trial_balance, name="trial-balance")
books_app.command(books.balances)
books_app.command(books.statement)
books_app.command(books.general_ledger, name="ledger")
findings_app = App(name="findings", help="What did not agree when sides were compared.", group=_ASK)
findings_app.command(reconciling.listed, name="list")
findings_app.command(reconciling.explain)
findings_app.command(reconciling.correct)
timeline_app = App(
    name="timeline", help="What happened when, in the terminal or as a picture.", group=_ASK
)
timeline_app.command(timelines.instance)
timeline_app.command(timelines.machine)
timeline_app.command(timelines.account)
scenario_app = App(name="scenario", help="Scenarios: the business as text.", group=_RUN)
scenario_app.command(running.scenario_run, name="run")

for command in (
    running.serve,
    running.demo,
    supervising.supervise,
    running.trace,
    running.rebuild,
    reconciling.reconcile,
    running.backup,
    running.restore,
):
    app.command(command, group=_RUN)
app.command(agent_app)
app.command(scenario_app)
for question in (
    questions.accounts,
    questions.machines,
    offers.offers,
    offers.gpus,
    offers.allocations,
    questions.instances,
    questions.volumes,
    questions.templates,
    usage.ticks,
    usage.charges,
    usage.anomalies,
    usage.explain,
    documents.invoice,
    money.balance,
    grants.grants,
    money.transfers,
    questions.events,
    questions.policy,
):
    app.command(question, group=_ASK)
app.command(money.trial_balance, name="trial-balance", group=_ASK)
app.command(payments_app)
app.command(books_app)
app.command(timeline_app)
app.command(findings_app)
app.command(calc_app)
app.command(keys_app)
app.command(keys.deposit, group=_WRITE)
app.command(grants.grant, group=_WRITE)


def main() -> NoReturn:
    """Run the command line that the program was started with, and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    given = [one for one in arguments if one != "--debug"]
    debug = len(given) != len(arguments) or os.environ.get(_DEBUG, "") not in {"", "0"}
    try:
        result = app(given, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read has read enough; what is still buffered must not fail again at the exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        if debug:
            traceback.print_exception(error)
        message, code = _told(error)
        sys.stderr.write(f"error: {' '.join(message.split())}\n")
        return code
    return result if isinstance(result, int) else OK


def _told(error: Exception) -> tuple[str, int]:
    """What a person is told about an error, and the exit code."""
    match error:
        case CycloptsError():
            return f"{error or type(error).__name__} (see `gpuledger --help`)", WRONG_USAGE
        case RejectedError() if error.code.startswith(("invalid", "amount_too")):
            return error.message, WRONG_USAGE
        case CorruptHistoryError():
            return f"the books contradict each other: {error.message}", FAILED
        case LedgerError():
            hint = _HINTS.get(error.code)
            return (f"{error.message}; {hint}" if hint else error.message), FAILED
        case FileNotFoundError() | IsADirectoryError() | NotADirectoryError() | PermissionError():
            return f"{error.filename}: {error.strerror}", WRONG_USAGE
        case OSError():
            return str(error), FAILED
        case _:
            what = f"{type(error).__name__}: {error}"
            return f"{what}; this is a defect of gpuledger, --debug shows where", FAILED


if __name__ == "__main__":
    main()
