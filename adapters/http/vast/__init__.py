"""The API that the unmodified `vastai` client speaks: a translation of it to the core and back.

No rule of the business lives here. Each file translates one area; `wire` says how values travel,
`errors` how refusals read, `call` who asks. Taking this folder away takes the frontend away and
nothing else.
"""

from adapters.http.vast.app import frontend

__all__ = ["frontend"]
