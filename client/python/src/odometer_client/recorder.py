from __future__ import annotations

import atexit
import logging
import secrets
import threading
import time
import types
import uuid
from collections.abc import Callable
from datetime import datetime, timezone

from odometer_client.client import Client, ProblemError, UnencodableError
from odometer_client.schema import Event, EventBatch, IngestError

logger = logging.getLogger(__name__)

MAX_BATCH = 1_000
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
REFUSED = {400, 413, 422}  # about the events themselves: the service would refuse them again, with any API key


def new_key() -> str:
    """Returns a UUID of version 7 (RFC 9562, 5.7), which the service finds and stores at the lowest cost."""
    unix_ms = time.time_ns() // 1_000_000
    return str(uuid.UUID(int=unix_ms << 80 | 7 << 76 | secrets.randbits(12) << 64 | 0b10 << 62 | secrets.randbits(62)))


class BufferFullError(Exception):
    """Events are recorded faster than the service accepts them."""


class ClosedError(Exception):
    """The recorder accepts no more events."""


class UnsentError(Exception):
    """The timeout ended before all events were sent."""


class Recorder:
    """Sends events in the background, in batches, and is safe for use by many threads.

    It sets the idempotency key and the timestamp of each event once, when the event is recorded, and repeats a batch unchanged
    until the service has answered. So an event counts once, even if requests or responses are lost. An API key that was rotated or
    lacks a permission loses no event, and neither does an outage. The recorder discards only events that cannot be encoded or that
    the service rejects because of their content, and calls on_rejected.

    Recorded events are kept in memory. close sends the rest. The end of the interpreter also sends the rest, for at most
    exit_timeout seconds.
    """

    def __init__(
        self,
        client: Client,
        *,
        every: float = 1.0,
        batch: int = MAX_BATCH,
        buffer: int = 100_000,
        exit_timeout: float = 10.0,
        on_rejected: Callable[[Event, str], None] | None = None,
        on_retry: Callable[[Exception], None] | None = None,
    ) -> None:
        """every: maximum number of seconds that an event waits for others to share its request. batch: maximum number of events
        in a request. buffer: number of unsettled events at which record raises BufferFullError. on_rejected is called with each
        event that the service rejects permanently, and the reason. on_retry is called with the error of each failed attempt. The
        events are kept and sent again. By default, both are logged."""
        self._client = client
        self._every = every
        self._batch = min(max(batch, 1), MAX_BATCH)
        self._limit = buffer
        self._on_rejected = on_rejected or self._log_rejected
        self._on_retry = on_retry or self._log_retry
        self._exit_timeout = exit_timeout

        self._changed = threading.Condition()
        self._buffer: list[Event] = []
        self._pending = 0  # events recorded and not yet settled, those being sent included
        self._failure: Exception | None = None  # error of the last attempt; None: none, or events were settled since
        self._hurried = False
        self._closed = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="odometer-recorder", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)

    def record(self, event: Event) -> None:
        """Accepts an event without waiting for the network. The default timestamp is now, and the default key is new_key()."""
        taken = event.copy()
        taken.setdefault("timestamp", datetime.now(timezone.utc).isoformat())
        taken.setdefault("idempotency_key", new_key())
        with self._changed:
            if self._closed:
                raise ClosedError("the recorder is closed")
            if self._pending >= self._limit:
                raise BufferFullError("the recorder's buffer is full")
            self._buffer.append(taken)
            self._pending += 1
            if len(self._buffer) >= self._batch:
                self._hurry()

    def flush(self, timeout: float | None = None) -> None:
        """Sends the recorded events, and returns once all are settled. Raises UnsentError if the timeout, in seconds, ends first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._pending > 0:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise UnsentError(f"{self._pending} events are not sent: {self._failure or 'no time was left'}")
                self._hurry()
                self._changed.wait(left)

    def close(self, timeout: float | None = None) -> None:
        """Accepts no more events, sends the rest, and ends the recorder. If the timeout ends first, raises UnsentError with the number
        of lost events."""
        with self._changed:
            self._closed = True
        try:
            self.flush(timeout)
        finally:
            atexit.unregister(self._at_exit)
            self._stopped.set()
            with self._changed:
                self._hurry()
            self._thread.join(timeout)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self.close()

    def _at_exit(self) -> None:
        try:
            self.close(self._exit_timeout)
        except UnsentError as error:
            logger.error("events are lost: %s", error)

    def _hurry(self) -> None:
        self._hurried = True
        self._changed.notify_all()

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self._changed:
                if not self._hurried:
                    self._changed.wait(self._every)
                self._hurried = False
            while not self._stopped.is_set() and (batch := self._next()):
                self._send(batch)

    def _next(self) -> list[Event]:
        with self._changed:
            batch, self._buffer = self._buffer[: self._batch], self._buffer[self._batch :]
            return batch

    def _send(self, batch: list[Event]) -> None:
        """Repeats a batch until the service has decided on each of its events. A refused batch is divided, so that only events that
        the service refuses on their own are discarded."""
        pause = FIRST_PAUSE
        while not self._stopped.is_set():
            try:
                answer = self._client.ingest_events(EventBatch(events=batch))
                self._settle(batch, answer["errors"])
                return
            except UnencodableError as error:
                self._divide(batch, error)
                return
            except ProblemError as error:
                if error.status in REFUSED:
                    self._divide(batch, error)
                    return
                self._failed(error)
                self._stopped.wait(max(pause, error.retry_after))
            except Exception as error:  # any error: the events are kept
                self._failed(error)
                self._stopped.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _divide(self, batch: list[Event], error: Exception) -> None:
        if len(batch) == 1:
            self._reject(batch[0], str(error))
            self._forget(1)
            return
        half = len(batch) // 2
        self._send(batch[:half])
        self._send(batch[half:])

    def _settle(self, batch: list[Event], rejected: list[IngestError]) -> None:
        for error in rejected:
            if 0 <= error["index"] < len(batch):
                self._reject(batch[error["index"]], f"{error['code']}: {error['message']}")
        self._forget(len(batch))

    def _forget(self, settled: int) -> None:
        with self._changed:
            self._pending -= settled
            self._failure = None
            self._changed.notify_all()

    def _failed(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
        try:
            self._on_retry(error)
        except Exception:
            logger.exception("on_retry failed")

    def _reject(self, event: Event, reason: str) -> None:
        try:
            self._on_rejected(event, reason)
        except Exception:
            logger.exception("on_rejected failed")

    @staticmethod
    def _log_rejected(event: Event, reason: str) -> None:
        logger.error("event rejected: %s: %s", event.get("event_type"), reason)

    @staticmethod
    def _log_retry(error: Exception) -> None:
        logger.warning("events not sent yet: %s", error)
