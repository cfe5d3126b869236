"""A client of Odometer that keeps every digit of a decimal, a recorder of events, quotas, and the verification of statements."""

from odometer_client.client import Client, OdometerError, ProblemError, UnencodableError
from odometer_client.quotas import CheckResult, Quotas
from odometer_client.recorder import BufferFullError, ClosedError, Recorder, UnsentError
from odometer_client.reservations import HeldReservation, QuotaExceededError, ReservationEventError, SettleError, UnavailableError
from odometer_client.statements import StatementError, verify_statement

__all__ = [
    "BufferFullError",
    "CheckResult",
    "Client",
    "ClosedError",
    "HeldReservation",
    "OdometerError",
    "ProblemError",
    "QuotaExceededError",
    "Quotas",
    "Recorder",
    "ReservationEventError",
    "SettleError",
    "StatementError",
    "UnavailableError",
    "UnencodableError",
    "UnsentError",
    "verify_statement",
]
