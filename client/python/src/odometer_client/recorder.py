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
REFUSED = {400, 413, 422}  # the answer is about the events themselves: they would be refused again, whoever sends them


def new_key() -> str:
    """A UUID of version 7 (RFC 9562, 5.7), which the service finds and stores at the least cost, however many it knows."""
    unix_ms = time.time_ns() // 1_000_000
    return str(uuid.UUID(int=unix_ms << 80 | 7 << 76 | secrets.randbits(12) << 64 | 0b10 << 62 | secrets.randbits(62)))


class BufferFullError(Exception):
    """Events are recorded faster than the service takes them."""


class ClosedError(Exception):
    """The recorder takes no more events."""


class UnsentError(Exception):
    """Time has run out, and events are not sent."""


class Recorder:
    """Sends events in the background, in batches, and is safe for use by many threads.

    Each event's idempotency key and timestamp are made once, when it is recorded, and a batch is repeated with the same ones until
    the service has answered: an event counts once, even if a response is lost. No event is lost while a key is rotated or lacks a
    permission, or while the service does not answer: only an event that the service refuses because of its content is dropped, and
    on_rejected is called with it.

    What is recorded is kept in memory. close sends the rest; so does the end of the interpreter, for exit_timeout seconds.
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
        """every: seconds that an event waits for others to share its request. batch: events that make a request at once.
        buffer: events that may wait before record raises BufferFullError. on_rejected is told of an event that the service will
        never take and why, on_retry why events were not taken that are sent again; both are logged where they are None."""
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
        self._failure: Exception | None = None  # of the last attempt; None: it was answered
        self._hurried = False
        self._closed = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="odometer-recorder", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)

    def record(self, event: Event) -> None:
        """Takes an event and does not wait for the network. Without a timestamp it happened now; without a key it gets one."""
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
        """Sends what is recorded and returns when every event is settled. UnsentError when the timeout, in seconds, is over first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._pending > 0:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise UnsentError(f"{self._pending} events are not sent: {self._failure or 'no time was left'}")
                self._hurry()
                self._changed.wait(left)

    def close(self, timeout: float | None = None) -> None:
        """Takes no more events, sends the rest, and ends the recorder. UnsentError says how many events are lost."""
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
        """Repeats a batch until the service has decided on each of its events. Of a batch that it refuses only the events are given
        up that it refuses alone."""
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
