"""Verification of the statements that a webhook receives."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from odometer_client.statement_forms import FORMS, expected_unit, minor_digits


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

    The rules are in docs/api/clients.md: the order of steps, the unit, the decimals and the number of events
    of each step, and the formulas. A line without steps repeats an earlier statement and is not verified.
    Steps without a formula are taken as stated: usage, fields of the price, the lines of a provider's own
    price, and the units and amounts that were billed before.
    """
    message = json.loads(body, parse_float=str, parse_int=str, parse_constant=str)
    if not isinstance(message, dict):
        raise ValueError("the statement is no JSON object")
    if message.get("type") != "usage.statement":
        raise ValueError(f"the type of the message is {json.dumps(message.get('type', ''))}, not usage.statement")
    for kind in ("meters", "adjustments"):
        subjects: set[tuple[str, str]] = set()
        for i, line in enumerate((message.get("data") or {}).get(kind) or []):
            try:
                meter, subject = line.get("meter_id", ""), (line.get("meter_id", ""), (line.get("period") or {}).get("start", ""))
                if subject in subjects:
                    raise StatementError(f"{kind}[{i}]/meter_id", meter, reason="an earlier line has the same meter and period")
                subjects.add(subject)
                _verify_line(line, kind, f"{kind}[{i}]")
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
    events: Fraction = Fraction(0)
    parts: _Breakdown = field(default_factory=lambda: _Breakdown())

    def last_rate(self, name: str) -> Fraction:
        """The rate of the last part that has one."""
        rates = [rate.stated for part in self.parts.steps if (rate := part.parts.find(name))]
        return rates[-1] if rates else Fraction(0)

    def number(self, field: str) -> Fraction:
        """A number of the step other than its amount. A missing number is 0."""
        return _decimal(f"{self.path}/{field}", self.text(field, "0"))

    def text(self, field: str, absent: str = "absent") -> str:
        value = self.json.get(field)
        return absent if value is None else str(value)

    def tier_number(self) -> Fraction:
        """The number of the step's tier, from 1."""
        if self.number("tier") < 1:
            raise StatementError(f"{self.path}/tier", self.text("tier"), reason="tiers are numbered from 1")
        return self.number("tier")

    def rounded(self, b: _Breakdown, currency: str) -> Fraction:
        """The exact amount as the step states it, half to even. Checks rounded_to."""
        stated, expected = self.text("rounded_to"), self.expected_decimals(b, currency)
        if stated != expected:
            raise StatementError(f"{self.path}/rounded_to", stated, expected)
        if self.name == "exact_charge":  # has as many decimals as a rounded quotient in it
            stated = b.get("usage_charge", "overage_charge").text("rounded_to")
        return self.exact if stated == "absent" else round(self.exact, int(stated))

    def expected_decimals(self, b: _Breakdown, currency: str) -> str:
        """The rounded_to of the step, or "absent" if the step is not rounded."""
        stated = self.text("rounded_to")
        if self.name == "charge" and not b.find("provider_charge"):
            return minor_digits(currency)
        if self.name == "reported_units":  # as the provider decides
            if not re.fullmatch("[0-9]{1,2}", stated):
                raise StatementError(f"{self.path}/rounded_to", stated, reason="it must be a number of decimals from 0 to 99")
            return stated
        reported = b.find("reported_units")
        if self.name == "elsewhere_units" and reported and not b.find("late_usage"):
            return reported.text("rounded_to")
        if self.name in ("usage_charge", "dimension_charge", "default_charge") and stated != "absent":
            if not re.fullmatch("1[6-9]|[2-9][0-9]", stated):
                raise StatementError(f"{self.path}/rounded_to", stated, reason="a quotient has 16 to 99 decimals")
            return stated
        return "absent"

    def expected_events(self, b: _Breakdown) -> Fraction | None:
        """The number of events, or None if it is not recomputed. Only the steps that are listed have one."""
        if self.name in ("usage", "late_usage", "dimension_units"):
            return None
        if self.name == "total_usage":
            return b.sum_events("usage", "late_usage")
        if self.name in ("matched_units", "unrated_units"):
            return self.parts.sum_events("dimension_units")
        return max(b.units().events, Fraction(0)) if self.name == "fixed_fees" else Fraction(0)

    def require_sum(self, parts: Fraction) -> None:
        """Require that the step is the sum of its division among tiers or prices."""
        _compare(self.path, self.json.get("amount"), parts)


@dataclass
class _Breakdown:
    """Verified steps. outer has those before the owner, which has these as parts."""

    owner: _Step | None = None
    outer: _Breakdown | None = None
    steps: list[_Step] = field(default_factory=list)

    def find(self, *names: str) -> _Step | None:
        """The last step with the first of the names."""
        return next((s for name in names for s in reversed(self.steps) if s.name == name), None)

    def get(self, *names: str) -> _Step:
        """A step that FORMS require."""
        step = self.find(*names)
        assert step
        return step

    def sum(self, *names: str) -> Fraction:
        return sum((s.stated for s in self.steps if s.name in names), Fraction(0))

    def sum_events(self, *names: str) -> Fraction:
        return sum((s.events for s in self.steps if s.name in names), Fraction(0))

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


def _verify_line(line: dict[str, Any], kind: str, path: str) -> None:
    if not line.get("steps"):
        return
    b = _verify_steps(kind, line["steps"], path, _Breakdown(), line.get("currency", ""))
    _compare(f"{path}/usage", line.get("usage"), b.get("quantity", "reported_units", "total_usage", "usage").stated)
    _compare(f"{path}/unit_price", line.get("unit_price"), _unit_price(b))
    _compare(f"{path}/amount", line.get("amount"), b.get("amount", "charge").stated)


def _verify_steps(form: str, steps: list[dict[str, Any] | None], path: str, b: _Breakdown, currency: str) -> _Breakdown:
    """Recompute the steps of a line, or the parts of a step. form is the kind of the line, or the name of that step."""
    found = [_Step(data or {}, f"{path}/{(data or {}).get('name', '')}[{i}]", (data or {}).get("name", "")) for i, data in enumerate(steps)]
    for s in found:
        if s.name not in _FORMULAS:
            reason = "the step is unknown, because this client is older than the statement"
            raise StatementError(s.path, s.text("amount", ""), reason=reason)
    names = "".join(f"{s.name}{':' if s.json.get('steps') else ''};" for s in found)
    if not FORMS[form].fullmatch(names):
        raise StatementError(f"{path}/steps", names.removesuffix(";"), reason="a step is missing, repeated or in another order")
    for s in found:
        unit, expected = s.text("unit", ""), expected_unit(s.name, b.owner.text("unit", "") if b.owner else "", currency)
        if unit != expected:
            raise StatementError(f"{s.path}/unit", unit, expected)
        s.exact = s.stated = _decimal(s.path, s.text("amount", ""))
        s.events = s.number("event_count")
        if s.json.get("steps"):
            s.parts = _verify_steps(s.name, s.json["steps"], s.path, _Breakdown(s, b), currency)
        if formula := _FORMULAS[s.name]:
            s.exact = formula(s, b)
        _compare(s.path, s.text("amount"), s.rounded(b, currency))
        events = s.expected_events(b)
        if events is not None:
            _compare(f"{s.path}/event_count", s.text("event_count", "0"), events)
        b.steps.append(s)
    return b


def _compare(path: str, stated: Any, exact: Fraction) -> None:
    if _decimal(path, stated) != exact:
        raise StatementError(path, str(stated), _format(exact))


def _decimal(path: str, text: Any) -> Fraction:
    if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", str(text)):
        raise StatementError(path, str(text), reason="it is not a plain decimal")
    return Fraction(text)


def _format(x: Fraction) -> str:
    """Write a number with at most 40 decimals."""
    digits = str(abs(round(x * 10**40))).zfill(41)
    return ("-" if x < 0 else "") + f"{digits[:-40]}.{digits[-40:]}".rstrip("0").rstrip(".")


def _sum_of_parts(s: _Step, _: _Breakdown) -> Fraction:
    """All parts: 0 without parts."""
    return sum((part.stated for part in s.parts.steps), Fraction(0))


def _units_beyond_included(_: _Step, b: _Breakdown) -> Fraction:
    return max(b.units().stated - b.get("included_units").stated, Fraction(0))


def _unit_charges(s: _Step, b: _Breakdown) -> Fraction:
    if b.find("percent"):
        return b.multiply("charged_units", "percent") / 100
    if not s.parts.steps:
        return b.multiply("charged_units", "unit_price")
    b.get("charged_units").require_sum(sum((tier.parts.sum("tier_units") for tier in s.parts.steps), Fraction(0)))
    return _sum_of_parts(s, b)


def _tier_units(_: _Step, b: _Breakdown) -> Fraction:
    """The charged units within the bounds of the tier.

    A volume price charges all units in the tier that they reach, so its only tier can be above 1.
    """
    assert b.owner and b.outer and b.outer.outer
    tier, charged = b.owner, b.outer.outer.get("charged_units").stated
    in_tier = charged if tier.json.get("up_to") is None else min(charged, tier.number("up_to"))
    units, is_first = max(in_tier - tier.number("above"), Fraction(0)), tier.tier_number() == 1
    if not is_first and units == 0:
        raise StatementError(tier.path, tier.text("amount"), reason="the charged units do not reach the tier")
    return charged if not is_first and not b.outer.steps and in_tier == charged else units


def _tier_charge(s: _Step, b: _Breakdown) -> Fraction:
    """Check that the tier follows the previous tier without a gap."""
    number, above = s.tier_number(), s.number("above")
    if previous := b.find("tier"):
        _compare(f"{s.path}/tier", s.text("tier"), previous.tier_number() + 1)
        _compare(f"{s.path}/above", s.text("above", "0"), previous.number("up_to"))
    elif number == 1 and above != 0:
        _compare(f"{s.path}/above", s.text("above"), Fraction(0))
    return s.parts.multiply("tier_units", "tier_unit_price")


def _tier_flat_fee(s: _Step, b: _Breakdown) -> Fraction:
    """Check that each fee belongs to another tier of unit_charges."""
    assert b.outer
    number, previous = s.tier_number(), b.find("tier_flat_fee")
    if previous and number <= previous.tier_number():
        raise StatementError(f"{s.path}/tier", s.text("tier"), reason="the fees are not in the order of the tiers")
    if number not in [tier.tier_number() for tier in b.outer.get("unit_charges").parts.steps]:
        raise StatementError(f"{s.path}/tier", s.text("tier"), reason="unit_charges has no such tier")
    return s.stated


def _fixed_fees(_: _Step, b: _Breakdown) -> Fraction:
    return b.get("fixed_fee").stated * max(b.units().events, Fraction(0))


def _usage_charge(_: _Step, b: _Breakdown) -> Fraction:
    """The charge of a model, or the sum of the exact charges by dimension."""
    if b.find("package_price"):
        return b.multiply("packages", "package_price")
    if b.find("charged_units"):
        return b.divide(b.get("unit_charges").stated, "per_units") + b.sum("flat_fees", "fixed_fees")
    prices = [s for s in b.steps if s.name in ("dimension_charge", "default_charge")]
    of = b.units()
    units = sum((s.parts.sum("matched_units") for s in prices), b.sum("unrated_units"))
    if of.name != "reported_units" or units > of.stated:  # rounding can leave less than reported_units
        of.require_sum(units)
    events = sum((s.parts.sum_events("matched_units") for s in prices), b.sum_events("unrated_units"))
    _compare(f"{of.path}/event_count", of.text("event_count", "0"), events)
    return sum((s.exact for s in prices), Fraction(0))


def _dimension_charge(s: _Step, b: _Breakdown) -> Fraction:
    """The exact charge of a price by dimension. Check that each price is listed once."""
    previous = b.find("dimension_charge")
    if s.number("dimension_price") <= (previous.number("dimension_price") if previous else 0):
        raise StatementError(
            f"{s.path}/dimension_price", s.text("dimension_price"), reason="the prices are not in the order of their numbers"
        )
    return _exact_charge(s, b)


def _exact_charge(s: _Step, _: _Breakdown) -> Fraction:
    """The charge of a price by dimension before rounding."""
    return s.parts.get("usage_charge", "overage_charge").exact


def _bounded_charge(_: _Step, b: _Breakdown) -> Fraction:
    """The charge within its bounds. Like every charge, it contains quotients before rounding."""
    charge = b.get("base_price").stated + b.get("usage_charge", "overage_charge").exact
    if least := b.find("minimum_charge"):
        charge = max(charge, least.stated)
    if most := b.find("maximum_charge"):
        charge = min(charge, most.stated)
    return charge


def _charge_after_trial(_: _Step, b: _Breakdown) -> Fraction:
    return Fraction(0) if b.find("trial") else b.get("exact_charge", "provider_charge").exact


def _billed_elsewhere(s: _Step, b: _Breakdown) -> Fraction:
    """The sum of all parts. At a provider's price, only the sum is stated."""
    if not s.parts.steps and b.find("provider_charge") and not b.find("late_usage"):
        return s.stated
    return _sum_of_parts(s, b)


def _remaining_amount(_: _Step, b: _Breakdown) -> Fraction:
    if b.find("trial"):
        return Fraction(0)
    return b.get("charge").stated - b.sum("closed_charge", "only_reported", "billed_elsewhere")


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


# Each step that a statement can contain. None: the step is taken as stated.
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
    "tier": _tier_charge,
    "tier_units": _tier_units,
    "tier_unit_price": None,
    "tier_flat_fee": _tier_flat_fee,
    "dimension_charge": _dimension_charge,
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
    "charge": _charge_after_trial,
    "closed_units": None,
    "closed_charge": None,
    "only_reported_units": None,
    "only_reported": None,
    "elsewhere_units": _sum_of_parts,
    "billed_elsewhere": _billed_elsewhere,
    "part": None,
    "quantity": lambda _, b: b.units().stated - b.sum("closed_units", "only_reported_units", "elsewhere_units"),
    "amount": _remaining_amount,
}
