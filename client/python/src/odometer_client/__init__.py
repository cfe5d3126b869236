"""A client of Odometer that keeps every digit of a decimal, and a recorder of events."""

from odometer_client.client import Client, OdometerError, ProblemError, UnencodableError
from odometer_client.recorder import BufferFullError, ClosedError, Recorder, UnsentError

__all__ = [
    "BufferFullError",
    "Client",
    "ClosedError",
    "OdometerError",
    "ProblemError",
    "Recorder",
    "UnencodableError",
    "UnsentError",
]
