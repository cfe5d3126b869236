from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from decimal import Context, Decimal
from typing import Any, Literal

from odometer_client.client import Client, OdometerError
from odometer_client.reservations import HeldReservation, is_refused
from odometer_client.schema import QuotaAmount, QuotaCheck

logger = logging.getLogger(__name__)

MAX_CACHED = 10_000  # customers, meters and groups in the cache
EXACT = Context(prec=100)
MAX_DIGITS = 40  # before and after the point, so that EXACT never rounds


@dataclass(frozen=True)
class CheckResult:
    """The decision about a check. failure is the error for which on_error has decided."""

    allowed: bool
    exceeded: bool = False
    used: Decimal | None = None
    reserved: Decimal | None = None
    limit: Decimal | None = None
    remaining: Decimal | None = None
    resets_at: str | None = None
    quota_id: str | None = None
    failure: Exception | None = None


class Quotas:
    """Checks and reserves usage before it happens, and is safe for use by many threads."""

    def __init__(
        self,
        client: Client,
        *,
        on_error: Literal["allow", "deny"],
        max_staleness: float,
        timeout: float = 2.0,
        settle_timeout: float = 30.0,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        """Times are in seconds. on_error: the decision while the service does not answer. max_staleness: the age up to which check
        uses an earlier answer of the service; with 0, each check is a request. timeout: the time in which the service must answer
        check or reserve, repeats of reserve included. settle_timeout: the time in which a settlement is repeated until the service
        answers. on_failure is called with the error of each request that the service did not answer. It is logged by default."""
        if on_error not in ("allow", "deny"):
            raise ValueError("on_error must be allow or deny")
        if not max_staleness >= 0:
            raise ValueError("max_staleness must be zero or more")
        self._client = client
        self._allows_on_error = on_error == "allow"
        self._max_staleness = max_staleness
        self._timeout = timeout
        self._settle_timeout = settle_timeout
        self._on_failure = on_failure or _log_failure
        self._lock = threading.Lock()
        self._cache: dict[str, _CachedQuota] = {}

    def check(self, customer: str, meter: str, amount: Decimal | int, *, group: Mapping[str, Any] | None = None) -> CheckResult:
        """Decides whether a customer may use an amount. It raises a ProblemError only if the service refuses the request for its
        content, such as an unknown meter.

        An answer from the cache counts the amounts that this Quotas has allowed since as used. The cache allows an amount only if
        every quota has as much left, and denies an amount only if the service has denied it, or less. check asks the service
        otherwise."""
        amount = Decimal(amount)
        with self._lock:
            entry = self._entry(customer, meter, amount, group)
            cached = entry and entry.decide(amount, self._max_staleness)
            if cached:
                return cached
            request = entry and entry.start_request()
        result, error = self._ask(customer, meter, amount, group)
        with self._lock:
            if entry and request:
                entry.store_answer(request, amount, result)
        if error:
            raise error
        return result

    @contextmanager
    def reserve(
        self, customer: str, amounts: list[QuotaAmount], *, expires_in: int = 300, id: str | None = None
    ) -> Iterator[HeldReservation]:
        """Reserves usage while the block runs. However the block ends, it settles the reservation with the events that the block has
        recorded, or releases it if there are none.

        It raises QuotaExceededError, UnavailableError, SettleError, or a ProblemError of a refused request. A request without an
        id gets one, so that a repeat reserves nothing twice. While the block runs, the reservation is extended each time half of
        expires_in has passed. A settlement is repeated until the service answers or settle_timeout is over. With on_error allow, the
        block runs without a reservation if the service does not answer; the events are stored all the same."""
        reservation = HeldReservation(self._client, customer, amounts, expires_in, id, self._on_failure)
        reservation.reserve(self._timeout, self._allows_on_error)
        stop = reservation.start_extending()
        try:
            yield reservation
        finally:
            stop()
            reservation.settle_or_release(self._settle_timeout)

    def _ask(self, customer: str, meter: str, amount: Decimal, group: Mapping[str, Any] | None) -> tuple[CheckResult, OdometerError | None]:
        check = QuotaCheck(customer=customer, meter=meter, amount=amount)
        if group is not None:
            check["group"] = dict(group)
        try:
            (decision,) = self._client.call("POST", "/v1/quotas/check", body={"checks": [check]}, timeout=self._timeout)["data"]
        except Exception as error:  # on_error decides for any error
            if isinstance(error, OdometerError) and is_refused(error):
                return CheckResult(False), error
            self._on_failure(error)
            return CheckResult(self._allows_on_error, failure=error), None
        return CheckResult(**{f.name: decision[f.name] for f in fields(CheckResult) if f.name in decision}), None

    def _entry(self, customer: str, meter: str, amount: Decimal, group: Mapping[str, Any] | None) -> _CachedQuota | None:
        """Returns the cache entry of a check, or None if the cache is disabled or full."""
        if self._max_staleness == 0 or not _is_plain(amount):
            return None
        key = json.dumps([customer, meter, group], sort_keys=True, default=repr)
        entry = self._cache.get(key)
        if entry is None:
            if len(self._cache) >= MAX_CACHED:
                self._cache = {k: e for k, e in self._cache.items() if not e.is_stale(self._max_staleness)}
            if len(self._cache) >= MAX_CACHED:
                return None
            entry = self._cache[key] = _CachedQuota()
        return entry


@dataclass(frozen=True)
class _Request:
    sent_at: float
    allowed: Decimal  # before the request


class _CachedQuota:
    """The latest answer about a customer, a meter and a group."""

    def __init__(self) -> None:
        self._allowed = Decimal(0)  # amounts that were allowed since the entry exists
        self._pending = 0  # requests without an answer
        self._request = _Request(float("-inf"), Decimal(0))  # of the answer
        self._answer: CheckResult | None = None
        self._amount = Decimal(0)  # of the answer's check

    def is_stale(self, max_staleness: float) -> bool:
        return self._pending == 0 and time.monotonic() - self._request.sent_at >= max_staleness

    def decide(self, amount: Decimal, max_staleness: float) -> CheckResult | None:
        answer = self._answer
        if answer is None or time.monotonic() - self._request.sent_at >= max_staleness or _has_reset(answer.resets_at):
            return None
        if not answer.allowed:
            return answer if amount >= self._amount else None
        result = replace(answer, exceeded=False)
        if answer.remaining is not None and answer.used is not None:
            since = EXACT.subtract(self._allowed, self._request.allowed)
            result = replace(result, remaining=EXACT.subtract(answer.remaining, since), used=EXACT.add(answer.used, since))
        if result.remaining is not None and amount > result.remaining:
            return None
        self._allowed = EXACT.add(self._allowed, amount)
        return result

    def start_request(self) -> _Request:
        self._pending += 1
        return _Request(time.monotonic(), self._allowed)

    def store_answer(self, request: _Request, amount: Decimal, result: CheckResult) -> None:
        self._pending -= 1
        if result.allowed:
            self._allowed = EXACT.add(self._allowed, amount)
        if result.failure is None and request.sent_at >= self._request.sent_at:
            self._request, self._answer, self._amount = request, result, amount


def _is_plain(amount: Decimal) -> bool:
    return amount.is_finite() and abs(amount.adjusted()) <= MAX_DIGITS and int(amount.as_tuple().exponent) >= -MAX_DIGITS


def _has_reset(resets_at: str | None) -> bool:
    if resets_at is None:
        return False
    whole = re.sub(r"\.\d+", "", resets_at).replace("Z", "+00:00")  # as Python 3.10 reads it
    return datetime.now(timezone.utc) >= datetime.fromisoformat(whole)


def _log_failure(error: Exception) -> None:
    logger.warning("quota request failed: %s", error)
