"""Tests of Quotas against a simulated quota API with scripted failures."""

from __future__ import annotations

import io
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Literal

import httpx
import pytest

from examples.limit import limit_calls
from examples.proxy import proxy_model
from odometer_client import (
    Client,
    HeldReservation,
    ProblemError,
    QuotaExceededError,
    Quotas,
    ReservationEventError,
    SettleError,
    UnavailableError,
)
from odometer_client.schema import QuotaAmount

SERVE = 200
NO_ANSWER = 0  # the connection breaks before the request is processed
LOST = -1  # the request is processed, then the connection breaks
HOUR = 3600.0
CALLS: list[QuotaAmount] = [{"meter": "calls", "amount": Decimal(5)}]


class Service(httpx.BaseTransport):
    """Simulates the quota API with one hard quota for the meter calls. It ignores the customer."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.resets_at: str | None = None
        self.held: dict[str, int] = {}
        self.settled: dict[str, list[dict[str, Any]]] = {}
        self.stored: list[dict[str, Any]] = []  # events sent without a reservation
        self.requests: list[str] = []  # last path segment of each request
        self.failures: dict[str, list[int]] = defaultdict(list)  # next results, by last path segment
        self.extended = threading.Semaphore(0)
        self.lock = threading.Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        *_, id, last = request.url.path.split("/")
        with self.lock:
            self.requests.append(last)
            failure = self.failures[last].pop(0) if self.failures[last] else SERVE
            if failure == NO_ANSWER:
                raise httpx.ConnectError("the connection broke")
            if failure not in (SERVE, LOST):
                return answer(failure, {"detail": "no"})
            response = self.serve(last, id, json.loads(request.read() or b"null"))
        if failure == LOST:
            raise httpx.ReadError("the connection broke")
        if last == "extend":
            self.extended.release()
        return response

    @property
    def left(self) -> int:
        return max(self.limit - self.used - sum(self.held.values()), 0)

    def serve(self, last: str, id: str, body: Any) -> httpx.Response:
        if last == "check":
            (check,) = body["checks"]
            if check["meter"] != "calls":
                return answer(422, {"detail": "there is no such meter"})
            allowed = check["amount"] <= self.left
            level = {"used": self.used, "reserved": 0, "limit": self.limit, "remaining": self.left}
            return answer(200, {"data": [{"allowed": allowed, "exceeded": not allowed, **level, "resets_at": self.resets_at}]})
        if last == "reserve":
            amount = body["amounts"][0]["amount"]
            if body["id"] not in self.held and amount > self.left:
                refused = {"allowed": False, "quota_id": "quo_5", "remaining": self.left, "resets_at": self.resets_at}
                return answer(200, refused)
            self.held[body["id"]] = amount
            return answer(201, {"allowed": True, "exceeded": False, "reservation_id": body["id"]})
        if last == "batch":
            self.stored += body["events"]
            return answer(200, {"errors": []})
        if last == "settle" and id in self.settled:
            return answer(200, {})
        if id not in self.held:
            return answer(404, {"detail": "there is no such reservation"})
        if last == "settle":
            self.settled[id] = body["events"]
        if last != "extend":
            del self.held[id]
        return answer(200, {})


def answer(status: int, body: object) -> httpx.Response:
    return httpx.Response(status, json=body, headers={"Content-Type": "application/json"})


def quotas_of(service: Service, on_error: Literal["allow", "deny"] = "deny", max_staleness: float = 0, **options: float) -> Quotas:
    client = Client("http://odometer", transport=service)
    options = {"timeout": HOUR, "settle_timeout": HOUR, **options}
    return Quotas(client, on_error=on_error, max_staleness=max_staleness, on_failure=lambda _: None, **options)


def check(quotas: Quotas, amount: str) -> tuple[bool, Decimal | None]:
    result = quotas.check("acme", "calls", Decimal(amount))
    return result.allowed, result.remaining


def use(quotas: Quotas, expires_in: int = 300) -> None:
    with quotas.reserve("acme", CALLS, expires_in=expires_in) as reservation:
        reservation.record("call")


def test_invalid_options_are_refused() -> None:
    with pytest.raises(ValueError, match="on_error must be allow or deny"):
        quotas_of(Service(0), "maybe")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_staleness must be zero or more"):
        quotas_of(Service(0), max_staleness=-1)


def test_without_a_cache_each_check_is_a_request() -> None:
    service = Service(2)
    quotas = quotas_of(service)
    assert [check(quotas, amount)[0] for amount in ("2", "2", "3")] == [True, True, False]
    assert service.requests == ["check"] * 3


def test_later_allowed_amounts_are_subtracted_from_a_cached_answer() -> None:
    service = Service(10)
    quotas = quotas_of(service, max_staleness=HOUR)
    assert [check(quotas, "2.5") for _ in range(4)] == [(True, Decimal(left)) for left in ("10", "7.5", "5", "2.5")]
    assert service.requests == ["check"]
    service.used = 10  # the allowed amounts are stored by now
    assert check(quotas, "2.5") == (False, Decimal(0))
    assert service.requests == ["check"] * 2


def test_many_threads_are_allowed_the_remaining_amount_at_most() -> None:
    service = Service(100)
    quotas = quotas_of(service, max_staleness=HOUR)
    allowed = [check(quotas, "1")[0]]
    service.used = 100  # used by other clients; only the cached answer still allows calls
    threads = [threading.Thread(target=lambda: allowed.extend(check(quotas, "1")[0] for _ in range(50))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(allowed) == 100


def test_a_denial_is_repeated_for_the_same_or_a_larger_amount() -> None:
    service = Service(10)
    quotas = quotas_of(service, max_staleness=HOUR)
    assert not any(check(quotas, amount)[0] for amount in ("11", "11", "12"))
    assert service.requests == ["check"]
    assert check(quotas, "10")[0]


def test_an_answer_is_used_until_its_age_is_max_staleness(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    service = Service(10)
    quotas = quotas_of(service, max_staleness=5)
    check(quotas, "1")
    now = 4.999
    check(quotas, "1")
    assert service.requests == ["check"]
    service.used, now = 10, 5.0
    assert check(quotas, "1") == (False, Decimal(0))


def test_an_answer_is_used_until_the_period_ends() -> None:
    service = Service(0)
    service.resets_at = "2020-01-01T00:00:00.123456789Z"
    quotas = quotas_of(service, max_staleness=HOUR)
    check(quotas, "1")
    check(quotas, "1")
    assert service.requests == ["check"] * 2


@pytest.mark.parametrize("on_error", ["allow", "deny"])
def test_on_error_decides_without_an_answer(on_error: Literal["allow", "deny"]) -> None:
    service = Service(10)
    service.failures["check"] = [NO_ANSWER, 503, 401]
    quotas = quotas_of(service, on_error, HOUR)
    for _ in range(3):
        result = quotas.check("acme", "calls", 1)
        assert result.allowed == (on_error == "allow")
        assert result.failure
    assert quotas.check("acme", "calls", 1).failure is None


def test_a_wrong_request_is_an_error() -> None:
    with pytest.raises(ProblemError, match="no such meter"):
        quotas_of(Service(10), "allow").check("acme", "cals", 1)


def test_a_reservation_is_settled_with_the_events_of_the_block() -> None:
    service = Service(10)
    use(quotas_of(service))
    ((event,),) = service.settled.values()
    assert event["customer_id"] == "acme"
    assert event["idempotency_key"]
    assert event["timestamp"]
    assert not service.held


@pytest.mark.parametrize("records", [False, True])
def test_a_block_that_raises_ends_the_reservation(records: bool) -> None:
    service = Service(10)
    with pytest.raises(RuntimeError), quotas_of(service).reserve("acme", CALLS) as reservation:
        if records:
            reservation.record("call")
        raise RuntimeError
    assert not service.held
    assert service.requests == ["reserve", "settle" if records else "release"]


def test_a_reservation_without_events_is_released() -> None:
    service = Service(10)
    with quotas_of(service).reserve("acme", CALLS) as reservation:
        assert service.held == {reservation.id: 5}
    assert service.requests == ["reserve", "release"]


def test_a_block_does_not_run_beyond_a_quota() -> None:
    with pytest.raises(QuotaExceededError) as raised:
        use(quotas_of(Service(4), "allow"))
    assert raised.value.refused["remaining"] == 4


def test_requests_are_repeated_with_one_id_until_they_are_answered() -> None:
    service = Service(5)  # a second reservation would not fit
    service.failures.update(reserve=[LOST, 503, LOST], settle=[LOST, 429, 401])
    use(quotas_of(service))
    assert service.requests == ["reserve"] * 4 + ["settle"] * 4
    assert not service.held


def test_a_reservation_is_extended_while_the_block_runs() -> None:
    service = Service(10)
    service.failures["extend"] = [503]
    with quotas_of(service).reserve("acme", CALLS, expires_in=1) as reservation:
        for _ in range(2):
            assert service.extended.acquire(timeout=300)
        reservation.record("call")
    assert len(service.settled) == 1


@pytest.mark.parametrize(("failures", "held"), [([503] * 9, 1), ([422], 0)])
def test_events_that_are_not_settled_are_returned(failures: list[int], held: int) -> None:
    service = Service(10)
    service.failures["settle"] = failures
    with pytest.raises(SettleError) as raised:
        use(quotas_of(service, settle_timeout=0.2))
    assert len(raised.value.events) == 1
    assert len(service.held) == held


def test_a_block_is_denied_without_an_answer() -> None:
    service = Service(10)
    service.failures["reserve"] = [NO_ANSWER] * 9
    with pytest.raises(UnavailableError):
        use(quotas_of(service, timeout=0.2))


def test_events_of_a_block_that_is_allowed_without_an_answer_are_stored() -> None:
    service = Service(10)
    service.failures.update(reserve=[NO_ANSWER] * 9, batch=[404, LOST])
    use(quotas_of(service, "allow", timeout=0.2))
    first, second = service.stored
    assert first["idempotency_key"] == second["idempotency_key"]


def test_events_after_the_1000th_or_after_the_end_are_refused() -> None:
    kept: HeldReservation
    with quotas_of(Service(10)).reserve("acme", CALLS) as kept:
        for _ in range(1000):
            kept.record("call")
        with pytest.raises(ReservationEventError):
            kept.record("call")
    with pytest.raises(ReservationEventError):
        kept.record("call")


def send(application: Any, body: bytes = b"") -> tuple[str, dict[str, str], bytes]:
    """Return the status, the headers and the body of an application's response."""
    started: list[Any] = []
    environ = {"HTTP_X_CUSTOMER": "acme", "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
    chunks: Iterable[bytes] = application(environ, lambda *arguments: started.extend(arguments))
    return started[0][:3], dict(started[1]), b"".join(chunks)


def application(environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("204 No Content", [])
    return []


def test_the_example_limits_calls() -> None:
    service = Service(1)
    service.resets_at = "2999-01-01T00:00:00Z"
    service.failures["check"] = [SERVE, SERVE, 503, 422]
    limited = limit_calls(quotas_of(service), "calls", application)
    assert send(limited)[0] == "204"
    service.used = 1
    status, headers, _ = send(limited)
    assert status == "429"
    assert int(headers["Retry-After"]) > 0
    assert [send(limited)[0] for _ in range(2)] == ["503", "503"]


class Model(BaseHTTPRequestHandler):
    status = 200

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b'{"model":"large","usage":{"total_tokens":42}}')

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


def test_the_example_limits_a_model() -> None:
    service = Service(100)
    service.resets_at = "2999-01-01T00:00:00Z"
    with HTTPServer(("127.0.0.1", 0), Model) as model:
        thread = threading.Thread(target=model.serve_forever, args=(0.01,))
        thread.start()
        proxy = proxy_model(quotas_of(service), f"http://127.0.0.1:{model.server_port}")
        try:
            assert b'"total_tokens":42' in send(proxy, b'{"max_tokens":50}')[2]
            assert [events[0]["value"] for events in service.settled.values()] == [42]
            assert send(proxy, b'{"max_tokens":500}')[0] == "429"
            assert send(proxy, b"{}")[0] == "400"
            Model.status = 500
            assert send(proxy, b'{"max_tokens":50}')[0] == "502"
            assert not service.held
        finally:
            model.shutdown()
            thread.join()
