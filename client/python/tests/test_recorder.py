"""Tests of Recorder against a simulated Events API with scripted results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from odometer_client import BufferFullError, Client, ClosedError, Recorder, UnsentError
from odometer_client.schema import Event

TAKE, CUT = 0, -1
HANGS = 300.0  # seconds after which a test has hung, even on a busy machine


class Service(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[int] = [TAKE]  # one result per request: a status, TAKE or CUT; the last one is repeated
        self.most = 0  # maximum number of events in a request; 0: no limit
        self.refused = ""  # customer id of refused events; "": none
        self.refusal = 422
        self.rejected: list[dict[str, Any]] = []
        self.keys: Counter[str] = Counter()
        self.pauses: list[str] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores errors, because tests cut connections."""

    def status(self, events: list[dict[str, Any]]) -> int:
        with self.lock:
            if self.most and len(events) > self.most:
                return 413
            if any(e["customer_id"] == self.refused for e in events):
                return self.refusal
            self.keys.update(e["idempotency_key"] for e in events)
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        events = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["events"]
        status = self.server.status(events)
        if status == CUT:
            self.connection.close()
            return
        body: dict[str, Any] = {"accepted": len(events), "rejected": 0, "duplicates": 0, "warnings": [], "errors": self.server.rejected}
        if status != TAKE:
            body = {"status": status, "detail": "no", "code": "no"}
        text = json.dumps(body).encode()
        self.send_response(status or 200)
        self.send_header("Content-Type", "application/problem+json" if status else "application/json")
        self.send_header("Content-Length", str(len(text)))
        for pause in self.server.pauses:
            self.send_header("Retry-After", pause)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def call(customer: str = "acme") -> Event:
    return {"event_type": "call", "customer_id": customer}


def recorded(service: Service, events: int, **options: Any) -> Recorder:
    recorder = Recorder(Client(service.url, timeout=HANGS), **options)
    record_many(recorder, events)
    return recorder


def record_many(recorder: Recorder, events: int) -> None:
    for _ in range(events):
        recorder.record(call())


def test_repeats_a_batch_with_the_same_keys_until_it_is_answered(service: Service) -> None:
    service.script = [CUT, 503, 429, TAKE]
    recorded(service, 10, every=HANGS).close(HANGS)
    assert len(service.keys) == 10
    assert set(service.keys.values()) == {4}


def test_sends_every_event_that_threads_record(service: Service) -> None:
    recorder = Recorder(Client(service.url), every=0.001, batch=100)
    threads = [threading.Thread(target=record_many, args=(recorder, 500)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close(HANGS)
    assert len(service.keys) == 4000


def test_halves_a_batch_that_is_too_large(service: Service) -> None:
    service.most = 3
    recorded(service, 10).close(HANGS)
    assert len(service.keys) == 10


def test_repeats_a_batch_that_is_refused_with_401_403_or_404(service: Service) -> None:
    service.script = [401, 403, 404, TAKE]
    rejected: list[Event] = []
    failures: list[Exception] = []
    recorded(service, 10, every=HANGS, on_rejected=lambda event, _: rejected.append(event), on_retry=failures.append).close(HANGS)
    assert not rejected
    assert [str(f) for f in failures] == [f"the service answered {status}: no" for status in (401, 403, 404)]
    assert set(service.keys.values()) == {4}


def test_waits_as_long_as_retry_after_requires(service: Service) -> None:
    service.script, service.pauses = [429], ["3600"]
    told = threading.Event()
    recorder = recorded(service, 1, on_retry=lambda _: told.set())
    assert told.wait(HANGS)
    with pytest.raises(UnsentError, match="1 events are not sent: the service answered 429"):
        recorder.flush(0.1)
    with pytest.raises(UnsentError):
        recorder.close(0.1)
    assert sum(service.keys.values()) == 1


def test_makes_keys_that_contain_the_time(service: Service) -> None:
    recorder = recorded(service, 0)
    before = time.time_ns() // 1_000_000
    recorder.record(call())
    recorder.close(HANGS)
    (key,) = map(uuid.UUID, service.keys)
    assert key.version == 7
    assert key.variant == uuid.RFC_4122
    assert before <= key.int >> 80 <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("status", [400, 413, 422])
def test_drops_only_the_event_that_is_refused(service: Service, status: int) -> None:
    service.refused, service.refusal = "bad", status
    rejected: list[str] = []
    recorder = recorded(service, 3, on_rejected=lambda event, _: rejected.append(event["customer_id"]))
    recorder.record(call("bad"))
    recorder.record(call())
    recorder.close(HANGS)
    assert rejected == ["bad"]
    assert len(service.keys) == 4


def test_drops_an_event_that_cannot_be_encoded(service: Service) -> None:
    rejected: list[str] = []
    recorder = Recorder(Client(service.url), on_rejected=lambda event, _: rejected.append(event["customer_id"]))
    recorder.record({"event_type": "call", "customer_id": "bad", "properties": {"it": object()}})
    recorder.record(call())
    recorder.close(HANGS)
    assert rejected == ["bad"]
    assert len(service.keys) == 1


def test_calls_on_rejected_for_each_event_that_the_service_rejects(service: Service) -> None:
    service.rejected = [{"index": 1, "code": "timestamp_too_old", "message": "too old"}]
    rejected: list[str] = []
    recorder = recorded(service, 1, on_rejected=lambda event, reason: rejected.append(f"{event['customer_id']} {reason}"))
    recorder.record(call("late"))
    recorder.close(HANGS)
    assert rejected == ["late timestamp_too_old: too old"]


def test_continues_if_a_callback_raises(service: Service) -> None:
    service.script = [503, TAKE]
    service.refused = "bad"

    def fail(*_: object) -> None:
        raise RuntimeError

    recorder = recorded(service, 3, on_retry=fail, on_rejected=fail)
    recorder.record(call("bad"))
    recorder.close(HANGS)
    assert len(service.keys) == 3


def test_refuses_events_if_the_buffer_is_full_or_the_recorder_is_closed(service: Service) -> None:
    service.script = [503]
    recorder = recorded(service, 5, buffer=5)
    with pytest.raises(BufferFullError):
        recorder.record(call())
    with pytest.raises(UnsentError, match="5 events are not sent"):
        recorder.close(0.1)
    with pytest.raises(ClosedError):
        recorder.record(call())


def test_sends_an_event_as_it_was_when_it_was_recorded(service: Service) -> None:
    event = call()
    recorder = Recorder(Client(service.url))
    recorder.record(event)
    event["customer_id"] = "other"
    recorder.record({**event, "idempotency_key": "mine"})
    recorder.close(HANGS)
    assert event == {"event_type": "call", "customer_id": "other"}
    assert service.keys["mine"] == 1


PROGRAM = """
import sys
from odometer_client import Client, Recorder
recorder = Recorder(Client(sys.argv[1]), exit_timeout=float(sys.argv[2]))
for _ in range(3):
    recorder.record({"event_type": "call", "customer_id": "acme"})
"""


def at_exit(service: Service, timeout: float) -> str:
    """Return the standard error output of the program."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent / "src")}
    command = [sys.executable, "-c", PROGRAM, service.url, str(timeout)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANGS, check=True).stderr


def test_sends_unsent_events_when_the_program_ends(service: Service) -> None:
    at_exit(service, HANGS)
    assert len(service.keys) == 3


def test_reports_lost_events_when_the_program_ends(service: Service) -> None:
    service.script = [503]
    assert "3 events are not sent" in at_exit(service, 0.2)
