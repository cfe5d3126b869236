from __future__ import annotations

import types
from collections.abc import Mapping
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import httpx
import simplejson

from odometer_client.operations import DECIMALS, Operations
from odometer_client.schema import Confirmation, FieldProblem


class OdometerError(Exception):
    """A call that the service did not answer, or did not answer with a success."""


class UnencodableError(OdometerError):
    """A body that cannot be encoded as JSON. Nothing was sent."""


class ProblemError(OdometerError):
    """An answer that is a problem. docs/api/errors.md explains each code."""

    def __init__(self, response: httpx.Response, problem: Mapping[str, Any]) -> None:
        self.status = response.status_code
        self.code: str = problem.get("code", "")
        self.detail: str = problem.get("detail", "")
        self.errors: list[FieldProblem] = problem.get("errors") or []
        self.confirmation: Confirmation | None = problem.get("confirmation")
        self.request_id: str = problem.get("request_id", "")
        self.retry_after = seconds(response.headers.get("Retry-After", ""))
        super().__init__(f"the service answered {self.status}: {self.detail}")


class Client(Operations):
    """The API's operations as methods, safe for use by many threads.

    Amounts and quantities are Decimal in both directions, JSON numbers on the wire. Times are RFC 3339 texts in answers;
    parameters take a datetime too. A call raises ProblemError for every answer that is not a success.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        auth: httpx.Auth | None = None,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.Client(base_url=base_url, headers=headers, auth=auth, timeout=timeout, transport=transport)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        path_parameters: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
        body: object = None,
        timeout: float | None = None,
    ) -> Any:
        """Calls an operation. timeout, in seconds, replaces the timeout of the client."""
        names = {name: quote(value, safe="") for name, value in (path_parameters or {}).items()}
        sent = {name: text for name, text in (headers or {}).items() if text is not None}
        content = None
        if body is not None:
            content = encode(body)
            sent["Content-Type"] = "application/json"
        parameters = {name: parameter(value) for name, value in (query or {}).items() if value is not None}
        limit = httpx.USE_CLIENT_DEFAULT if timeout is None else httpx.Timeout(timeout)
        try:
            response = self._http.request(method, path.format(**names), params=parameters, headers=sent, content=content, timeout=limit)
        except httpx.HTTPError as error:
            raise OdometerError(f"the service did not answer: {type(error).__name__}") from error
        return answer(response)


def answer(response: httpx.Response) -> Any:
    media = response.headers.get("Content-Type", "")
    body: Any = response.text
    if "json" in media:
        try:
            body = decode(response.content)
        except ValueError as error:
            raise OdometerError(f"the service answered {response.status_code} with what is no JSON") from error
    if response.is_success:
        return body
    raise ProblemError(response, body if isinstance(body, dict) else {})


def encode(body: object) -> bytes:
    try:
        text: str = simplejson.dumps(body, default=plain, use_decimal=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnencodableError(f"the body is no JSON: {error}") from error
    return text.encode()


def plain(value: object) -> object:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError("a decimal is not finite")
        return simplejson.RawJSON(format(value, "f"))
    if isinstance(value, datetime):
        return timestamp(value)
    raise TypeError(f"{type(value).__name__} is not a type of JSON")


def decode(text: bytes) -> Any:
    return simplejson.loads(text, use_decimal=True, object_hook=with_decimals)


def with_decimals(fields: dict[str, Any]) -> dict[str, Any]:
    """Converts integers in fields of decimals to Decimal, because the parser reads a decimal without a fraction as an integer."""
    for name in DECIMALS & fields.keys():
        fields[name] = as_decimal(fields[name])
    return fields


def as_decimal(value: object) -> object:
    if isinstance(value, list):
        return [as_decimal(part) for part in value]
    return Decimal(value) if type(value) is int else value


def parameter(value: object) -> str | list[str]:
    """Returns the text of a query parameter. A list is sent as a parameter for each of its values."""
    if isinstance(value, list):
        return [str(part) for part in value]
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def timestamp(value: datetime) -> str:
    if value.tzinfo is None:
        raise ValueError("a datetime needs a time zone")
    return value.astimezone(timezone.utc).isoformat()


def seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0
