"""Verification of the statements that a webhook receives."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any


class StatementError(Exception):
    """The first difference between a statement and its recomputation.

    path is such as meters[0]/unit_charges[6]/tier[1], with the positions in steps. recomputed is None if
    the statement lacks a step, or has an unknown one; reason then says why nothing was recomputed.
    """

    def __init__(self, path: str, stated: str, recomputed: str | None = None, reason: str = "") -> None:
        self.path, self.meter_slug, self.stated, self.recomputed, self.reason = path, "", stated, recomputed, reason

    def __str__(self) -> str:
        ending = f"recomputed it is {self.recomputed}" if self.recomputed is not None else f"cannot be recomputed: {self.reason}"
        return f"{self.path} ({self.meter_slug}) is {self.stated}, but {ending}"


def verify_statement(body: bytes | str) -> None:
    """Recompute each amount of a usage.statement message from the steps of its line.

    Raises StatementError for the first difference, and for a step that only a later version of the client
    knows. Raises ValueError for another text. Verify the signature of the message first.

    A line without steps repeats an earlier statement and is not verified. Steps without a formula are taken
    as stated: usage, fields of the price, the lines of a provider's own price, and the units and amounts
    that were billed before.
    """
    message = json.loads(body, parse_float=str, parse_int=str, parse_constant=str)
    if not isinstance(message, dict):
        raise ValueError("the statement is no JSON object")
    if message.get("type") != "usage.statement":
        raise ValueError(f"the type of the message is {json.dumps(message.get('type', ''))}, not usage.statement")
    for kind in ("meters", "adjustments"):
        for i, line in enumerate((message.get("data") or {}).get(kind) or []):
            try:
                _verify_line(line, f"{kind}[{i}]")
            except StatementError as error:
                error.meter_slug = line.get("meter_slug", "")
                raise


@dataclass
class _Step:
    """A step; exact is its amount before rounding."""

    json: dict[str, Any]
    path: str
    name: str
    stated: Fraction = Fraction(0)
    exact: Fraction = Fraction(0)
    parts: _Breakdown = field(default_factory=lambda: _Breakdown())

    def last_rate(self, name: str) -> Fraction:
        """The rate of the last part that has one."""
        rates = [rate.stated for part in self.parts.steps if (rate := part.parts.find(name))]
        return rates[-1] if rates else Fraction(0)

    def rounded(self) -> Fraction:
        """The exact amount to the decimals that the step states, half to even."""
        digits = self.json.get("rounded_to")
        if digits is None:
            return self.exact
        if not re.fullmatch(r"[0-9]{1,2}", str(digits)):
            raise StatementError(f"{self.path}/rounded_to", str(digits), reason="it is no number of decimals")
        return round(self.exact, int(digits))

    def require_sum(self, parts: Fraction) -> None:
        """Require that the step is the sum of its division among tiers or prices."""
        _compare(self.path, self.json.get("amount"), parts)


@dataclass
class _Breakdown:
    """Verified steps. outer has those before the owner, which has these as parts. at is verified now."""

    owner: _Step | None = None
    outer: _Breakdown | None = None
    steps: list[_Step] = field(default_factory=list)
    at: _Step | None = None

    def find(self, *names: str) -> _Step | None:
        """The last step with the first of the names."""
        return next((s for name in names for s in reversed(self.steps) if s.name == name), None)

    def get(self, *names: str) -> _Step:
        """A step that is required."""
        step = self.find(*names)
        if step is None:
            assert self.at
            raise StatementError(self.at.path, str(self.at.json.get("amount")), reason=f"the step {names[0]} is missing")
        return step

    def sum(self, *names: str) -> Fraction:
        return sum((s.stated for s in self.steps if s.name in names), Fraction(0))

    def multiply(self, name: str, by: str) -> Fraction:
        return self.get(name).stated * self.get(by).stated

    def divide(self, x: Fraction, name: str) -> Fraction:
        """Divide by a step. A step that is absent divides by 1."""
        by = self.find(name)
        if by is None:
            return x
        if by.stated <= 0:
            raise StatementError(by.path, by.json["amount"], reason="it must be above 0")
        return x / by.stated

    def units(self) -> _Step:
        """The step with the units that the price charges."""
        return self.get("matched_units", "reported_units", "total_usage", "usage")


def _verify_line(line: dict[str, Any], path: str) -> None:
    if not line.get("steps"):
        return
    b = _verify_steps(line["steps"], path, _Breakdown(), line.get("currency", ""))
    _compare(f"{path}/usage", line.get("usage"), b.get("quantity", "reported_units", "total_usage", "usage").stated)
    _compare(f"{path}/unit_price", line.get("unit_price"), _unit_price(b))
    _compare(f"{path}/amount", line.get("amount"), b.get("amount_with_adjustments", "amount", "charge").stated)


def _verify_steps(steps: list[dict[str, Any] | None], path: str, b: _Breakdown, currency: str) -> _Breakdown:
    b.at = b.owner
    for i, step in enumerate(steps):
        data: dict[str, Any] = step or {}
        name, amount, unit = data.get("name", ""), data.get("amount", ""), data.get("unit", "")
        s = _Step(data, f"{path}/{name}[{i}]", name)
        if name not in _FORMULAS:
            raise StatementError(s.path, amount, reason="the step is unknown, because this client is older than the statement")
        if unit not in ("units", "packages", "percent", currency):
            raise StatementError(f"{s.path}/unit", unit, currency)
        s.exact = s.stated = _decimal(s.path, amount)
        s.parts = _verify_steps(data.get("steps") or [], s.path, _Breakdown(s, b), currency)
        b.at, formula = s, _FORMULAS[name]
        if formula:
            s.exact = formula(s, b)
            _compare(s.path, amount, s.rounded())
        b.steps.append(s)
    return b


def _compare(path: str, stated: Any, exact: Fraction) -> None:
    if _decimal(path, stated) != exact:
        raise StatementError(path, str(stated), _format(exact))


def _decimal(path: str, text: Any) -> Fraction:
    if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", str(text)):
        raise StatementError(path, str(text), reason="it is no plain decimal")
    return Fraction(text)


def _format(x: Fraction) -> str:
    """Write a number with at most 40 decimals."""
    digits = str(abs(round(x * 10**40))).zfill(41)
    return ("-" if x < 0 else "") + f"{digits[:-40]}.{digits[-40:]}".rstrip("0").rstrip(".")


def _sum_of_parts(s: _Step, _: _Breakdown) -> Fraction:
    """All parts. A step without parts is taken as stated."""
    return sum((part.stated for part in s.parts.steps), Fraction(0)) if s.parts.steps else s.stated


def _units_beyond_included(_: _Step, b: _Breakdown) -> Fraction:
    return max(b.units().stated - b.get("included_units").stated, Fraction(0))


def _unit_charges(s: _Step, b: _Breakdown) -> Fraction:
    if b.find("percent"):
        return b.multiply("charged_units", "percent") / 100
    if not s.parts.steps:
        return b.multiply("charged_units", "unit_price")
    b.get("charged_units").require_sum(sum((tier.parts.sum("tier_units") for tier in s.parts.steps), Fraction(0)))
    return _sum_of_parts(s, b)


def _tier_units(s: _Step, b: _Breakdown) -> Fraction:
    """The charged units between the bounds of the tier. With the model volume, the only tier has all of them."""
    if not b.owner or not b.outer or not b.outer.outer:
        raise StatementError(s.path, s.json["amount"], reason="the step tier is missing")
    tier, charged = b.owner, b.outer.outer.get("charged_units").stated
    above = _decimal(f"{tier.path}/above", tier.json.get("above") or "0")
    in_tier = min(charged, _decimal(f"{tier.path}/up_to", tier.json["up_to"])) if tier.json.get("up_to") is not None else charged
    is_volume = _decimal(f"{tier.path}/tier", tier.json.get("tier") or "0") > 1 and not b.outer.steps
    if is_volume and above < charged == in_tier:
        return charged
    return max(in_tier - above, Fraction(0))


def _fixed_fees(s: _Step, b: _Breakdown) -> Fraction:
    events = max(
        _decimal(f"{b.units().path}/event_count", b.units().json.get("event_count") or "0"), Fraction(0)
    )  # 0 with reported_units, which have no number of events
    _compare(f"{s.path}/event_count", s.json.get("event_count", "0"), events)
    return b.get("fixed_fee").stated * events


def _usage_charge(_: _Step, b: _Breakdown) -> Fraction:
    """The charge of a model, or the sum of the exact charges by dimension."""
    if b.find("package_price"):
        return b.multiply("packages", "package_price")
    if b.find("charged_units"):
        return b.divide(b.get("unit_charges").stated, "per_units") + b.sum("flat_fees", "fixed_fees")
    prices = [s for s in b.steps if s.name in ("dimension_charge", "default_charge")]
    if not b.find("reported_units"):
        b.units().require_sum(sum((s.parts.sum("matched_units") for s in prices), b.sum("unrated_units")))
    return sum((s.exact for s in prices), Fraction(0))


def _exact_charge(s: _Step, _: _Breakdown) -> Fraction:
    """The charge of a price by dimension before rounding."""
    return s.parts.get("usage_charge", "overage_charge").exact


def _bounded_charge(_: _Step, b: _Breakdown) -> Fraction:
    charge = b.get("base_price").stated + b.get("usage_charge", "overage_charge").stated
    if least := b.find("minimum_charge"):
        charge = max(charge, least.stated)
    if most := b.find("maximum_charge"):
        charge = min(charge, most.stated)
    return charge


def _remaining_amount(_: _Step, b: _Breakdown) -> Fraction:
    if b.find("trial"):
        return Fraction(0)
    return b.get("charge").stated - b.sum("unbilled_charge", "closed_charge", "only_reported", "billed_elsewhere")


def _adjustment(s: _Step, b: _Breakdown) -> Fraction:
    """The result of its own breakdown, or the sum of reported parts."""
    result = s.parts.find("amount", "charge")
    return result.stated if result else _sum_of_parts(s, b)


def _unit_price(b: _Breakdown) -> Fraction:
    """The rate of the last charged unit; 0 without such units, and by dimension."""
    if rate := b.find("overage_rate"):
        return rate.stated
    if provider := b.find("provider_charge"):
        return provider.last_rate("price_rate")
    if b.sum("charged_units") == 0:
        return Fraction(0)
    if percent := b.find("percent"):
        return percent.stated / 100
    price = b.find("package_price", "unit_price")
    return round(b.divide(price.stated if price else b.get("unit_charges").last_rate("tier_unit_price"), "per_units"), 12)


# Each step that a statement can contain, as GET /v1/billing/explain names them. None: the step is taken as stated.
_FORMULAS: dict[str, Callable[[_Step, _Breakdown], Fraction] | None] = {
    "usage": None,
    "late_usage": None,
    "total_usage": lambda _, b: b.sum("usage", "late_usage"),
    "reported_units": lambda _, b: b.sum("usage", "late_usage"),
    "included_units": None,
    "overage_units": _units_beyond_included,
    "overage_rate": None,
    "overage_charge": lambda _, b: b.multiply("overage_units", "overage_rate"),
    "charged_units": _units_beyond_included,
    "unit_price": None,
    "package_size": None,
    "packages": lambda _, b: Fraction(math.ceil(b.divide(b.get("charged_units").stated, "package_size"))),
    "package_price": None,
    "percent": None,
    "unit_charges": _unit_charges,
    "per_units": None,
    "flat_fees": _sum_of_parts,
    "fixed_fee": None,
    "fixed_fees": _fixed_fees,
    "usage_charge": _usage_charge,
    "tier": lambda s, _: s.parts.multiply("tier_units", "tier_unit_price"),
    "tier_units": _tier_units,
    "tier_unit_price": None,
    "tier_flat_fee": None,
    "dimension_charge": _exact_charge,
    "default_charge": _exact_charge,
    "matched_units": _sum_of_parts,
    "unrated_units": _sum_of_parts,
    "dimension_units": None,
    "base_price": None,
    "minimum_charge": None,
    "maximum_charge": None,
    "exact_charge": _bounded_charge,
    "provider_charge": _sum_of_parts,
    "price_line": None,  # rounded by the rules of the provider
    "priced_units": None,
    "price_rate": None,
    "trial": lambda _, b: b.get("exact_charge", "provider_charge").stated,
    "charge": lambda _, b: b.get("exact_charge", "provider_charge").stated - b.sum("trial"),
    "unbilled_units": None,
    "unbilled_charge": None,
    "closed_units": None,
    "closed_charge": None,
    "only_reported_units": None,
    "only_reported": None,
    "elsewhere_units": _sum_of_parts,
    "billed_elsewhere": _sum_of_parts,
    "part": None,
    "quantity": lambda _, b: b.units().stated - b.sum("unbilled_units", "closed_units", "only_reported_units", "elsewhere_units"),
    "amount": _remaining_amount,
    "adjustment": _adjustment,
    "amount_with_adjustments": lambda _, b: b.get("amount", "charge").stated + b.sum("adjustment"),
}
