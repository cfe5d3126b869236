"""Stops the customers of a WSGI application at a quota."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from odometer_client import ProblemError, Quotas

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def customer_of(environ: WSGIEnvironment) -> str:
    """The customer of a request. Replace it by your authentication."""
    return str(environ.get("HTTP_X_CUSTOMER", ""))


def limit_calls(quotas: Quotas, meter: str, application: WSGIApplication) -> WSGIApplication:
    """Answers 429 if a hard quota of the meter is used up for the customer, and passes other requests to the application. It answers
    503 if there is no decision."""

    def limited(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            check = quotas.check(customer_of(environ), meter, 1)
        except ProblemError:
            return respond(start_response, "503 Service Unavailable", "quotas are not available")
        if check.allowed:
            return application(environ, start_response)
        if check.failure:
            return respond(start_response, "503 Service Unavailable", "quotas are not available")
        return refuse(start_response, check.resets_at)

    return limited


def refuse(start_response: StartResponse, resets_at: str | None) -> Iterable[bytes]:
    """Answers 429. Retry-After is the time until the quota's next period, in seconds."""
    headers = []
    if resets_at:
        left = datetime.fromisoformat(resets_at.replace("Z", "+00:00")) - datetime.now(timezone.utc)
        headers.append(("Retry-After", str(max(math.ceil(left.total_seconds()), 1))))
    return respond(start_response, "429 Too Many Requests", "the quota is used up", headers)


def respond(start_response: StartResponse, status: str, text: str, headers: list[tuple[str, str]] | None = None) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain"), *(headers or [])])
    return [text.encode()]
