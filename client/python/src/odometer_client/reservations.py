from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from odometer_client.client import Client, OdometerError, ProblemError, UnencodableError
from odometer_client.recorder import FIRST_PAUSE, LONGEST_PAUSE, new_key
from odometer_client.schema import Event, QuotaAmount, RefusedReservation, Reserve

MAX_EVENTS = 1_000
LONGEST_ANSWER = 10.0  # of each request that extends, settles or releases
REFUSED = {400, 409, 413, 422}  # a repeat of the request would fail again
NOT_FOUND = 404


class QuotaExceededError(Exception):
    """A hard quota has less left than an amount."""

    def __init__(self, refused: RefusedReservation) -> None:
        super().__init__(f"quota {refused['quota_id']} has {refused['remaining']} left")
        self.refused = refused


class UnavailableError(Exception):
    """Usage is not reserved, because the service did not answer, with on_error deny."""


class SettleError(Exception):
    """The events of a reservation are not stored. A repeat of settle_reservation with the same events counts nothing twice."""

    def __init__(self, reservation_id: str, events: list[Event], cause: Exception) -> None:
        super().__init__(f"reservation {reservation_id} is not settled with {len(events)} events: {cause}")
        self.reservation_id = reservation_id
        self.events = events


class ReservationEventError(Exception):
    """An event that cannot be settled with its reservation. Send it with a Recorder."""


class HeldReservation:
    """A reservation while its block runs, safe for use by many threads. exceeded: a soft quota has less left than an amount."""

    def __init__(
        self,
        client: Client,
        customer: str,
        amounts: list[QuotaAmount],
        expires_in: int,
        id: str | None,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.id = id or new_key()
        self.exceeded = False
        self._client = client
        self._request = Reserve(id=self.id, customer=customer, amounts=amounts, expires_in=expires_in)
        self._expires_in = expires_in
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._ended = False

    def record(self, event_type: str, **fields: Any) -> None:
        """Adds an event of the usage, with the fields of Event, 1,000 at most."""
        event: Event = {"customer_id": self._request["customer"], "event_type": event_type, **fields}  # type: ignore[typeddict-item]
        event.setdefault("timestamp", datetime.now(timezone.utc).isoformat())
        event.setdefault("idempotency_key", new_key())
        with self._lock:
            if self._ended:
                raise ReservationEventError("the reservation has ended; send further events with a Recorder")
            if len(self._events) >= MAX_EVENTS:
                raise ReservationEventError("a reservation is settled with at most 1000 events; send further events with a Recorder")
            self._events.append(event)

    def reserve(self, timeout: float, allows_on_error: bool) -> None:
        """Reserves usage. It repeats the request until the service answers."""
        deadline = time.monotonic() + timeout
        try:
            self._repeat_until_answered(deadline, lambda: self._send_reserve(max(deadline - time.monotonic(), 0.001)))
        except Exception as error:
            if isinstance(error, QuotaExceededError) or is_refused(error):
                raise
            if not allows_on_error:
                raise UnavailableError(f"usage is not reserved, because the service did not answer: {error}") from error

    def _send_reserve(self, timeout: float) -> None:
        answer = self._client.call("POST", "/v1/quotas/reserve", body=self._request, timeout=timeout)
        if not answer["allowed"]:
            raise QuotaExceededError(answer)
        self.exceeded = answer["exceeded"]

    def start_extending(self) -> Callable[[], None]:
        """Extends the reservation until the returned function is called, or until the service no longer has it."""
        stopped = threading.Event()
        threading.Thread(target=self._extend_until, args=(stopped,), name="odometer-reservation", daemon=True).start()
        return stopped.set

    def _extend_until(self, stopped: threading.Event) -> None:
        half = wait = self._expires_in / 2
        while not stopped.wait(wait):
            try:
                self._post("extend", {"expires_in": self._expires_in})
                wait = half
            except Exception as error:
                if is_refused(error) or _is_not_found(error):
                    return
                self._on_failure(error)
                wait = max(wait / 2, FIRST_PAUSE)

    def settle_or_release(self, timeout: float) -> None:
        """Settles the reservation, or releases it if there are no events."""
        with self._lock:
            self._ended = True
        if not self._events:
            self._release()
            return
        try:
            self._repeat_until_answered(time.monotonic() + timeout, self._send_settle)
        except Exception as error:
            if is_refused(error):
                self._release()
            raise SettleError(self.id, self._events, error) from error

    def _send_settle(self) -> None:
        body = {"events": self._events}
        try:
            self._post("settle", body)
            return
        except ProblemError as error:
            if not _is_not_found(error):
                raise
        # The service does not have the reservation: store the events without it.
        answer = self._client.call("POST", "/v1/events/batch", body=body, timeout=LONGEST_ANSWER)
        for refused in answer["errors"]:
            raise RefusedEventError(f"events[{refused['index']}]: {refused['message']}")

    def _release(self) -> None:
        """Releases the reservation. A failure is only reported, because the reservation expires anyway."""
        try:
            self._post("release", None)
        except Exception as error:
            if not _is_not_found(error):
                self._on_failure(error)

    def _post(self, action: str, body: object) -> Any:
        path = f"/v1/quotas/reservations/{{id}}/{action}"
        return self._client.call("POST", path, path_parameters={"id": self.id}, body=body, timeout=LONGEST_ANSWER)

    def _repeat_until_answered(self, deadline: float, send: Callable[[], None]) -> None:
        """Sends a request until the service answers or the time is over, and raises the last error."""
        pause = FIRST_PAUSE
        while True:
            try:
                send()
                return
            except Exception as error:
                if isinstance(error, QuotaExceededError) or is_refused(error):
                    raise
                self._on_failure(error)
                if isinstance(error, ProblemError):
                    pause = max(pause, error.retry_after)
                if time.monotonic() + pause >= deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


class RefusedEventError(OdometerError):
    """An event that breaks a rule."""


def is_refused(error: Exception) -> bool:
    """Reports whether a repeat of the request would fail again."""
    return isinstance(error, (UnencodableError, RefusedEventError)) or (isinstance(error, ProblemError) and error.status in REFUSED)


def _is_not_found(error: Exception) -> bool:
    return isinstance(error, ProblemError) and error.status == NOT_FOUND
