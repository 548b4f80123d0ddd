"""What the workers of the store are doing, as `bartack workers` shows it."""

from typing import Any

from bartack.web.endpoint import Call, Endpoint

__all__ = ["WORKERS_ENDPOINTS"]


async def _workers(call: Call) -> Any:
    """The status of the queue. Users see the runs of their own sessions only."""
    service = call.service
    status = await service.queue.status()
    shown = status.as_json()
    for name, sessions in (
        ("running", [one.job.session_id for one in status.running]),
        ("stuck", [one.session_id for one in status.stuck]),
    ):
        shown[name] = [one for one, id in zip(shown[name], sessions, strict=True) if call.user.may_use(id)]
    return {**shown, "isUsed": service.has_workers or bool(status.workers)}


WORKERS_ENDPOINTS = (Endpoint("GET", "/api/workers", _workers, "Return the workers, and the live and waiting runs."),)
