"""The order, the unit and the decimals of the steps of a statement."""

from __future__ import annotations

import re

_MODEL = (
    "included_units (overage_units overage_rate overage_charge | charged_units (package_size packages package_price"
    " | percent unit_charges (fixed_fee fixed_fees)? | unit_price unit_charges per_units?"
    " | unit_charges: per_units? flat_fees:?) usage_charge)"
)
_CHARGE = (
    f"(provider_charge: | ({_MODEL} | dimension_charge:* default_charge:? unrated_units:? usage_charge)"
    " base_price minimum_charge? maximum_charge? exact_charge)"
)
_CLOSED = "closed_units closed_charge (only_reported_units only_reported)?"
_ELSEWHERE = "elsewhere_units: (billed_elsewhere | billed_elsewhere:)"


def _compile(form: str) -> re.Pattern[str]:
    return re.compile(re.sub("[a-z_]+:?", r"(?:\g<0>;)", form).replace(" ", ""))


# The order of the steps of a line in meters and in adjustments, and of the parts of each step that has parts. A name
# with a colon is a step with parts. In a trial, no other connection bills amounts.
FORMS = {
    "meters": _compile(
        f"usage reported_units? {_CHARGE} (charge ({_ELSEWHERE} quantity amount)? | trial charge (elsewhere_units: quantity amount)?)"
    ),
    "adjustments": _compile(
        f"usage late_usage total_usage reported_units? {_CHARGE}"
        f" (charge {_CLOSED} ({_ELSEWHERE})? | trial charge {_CLOSED} elsewhere_units:?) quantity amount"
    ),
    "dimension_charge": _compile(f"(matched_units | matched_units:) {_MODEL}"),
    "default_charge": _compile(f"(matched_units | matched_units:) {_MODEL}"),
    "matched_units": _compile("dimension_units+"),
    "unrated_units": _compile("dimension_units+"),
    "unit_charges": _compile("tier:+"),
    "tier": _compile("tier_units tier_unit_price"),
    "flat_fees": _compile("tier_flat_fee+"),
    "provider_charge": _compile("(price_line | price_line:)+"),
    "price_line": _compile("priced_units price_rate"),
    "elsewhere_units": _compile("part+"),
    "billed_elsewhere": _compile("part+"),
}


def expected_unit(name: str, owner_unit: str, currency: str) -> str:
    """The unit of a step. The unit of a part is the unit of its owner."""
    if name == "part":
        return owner_unit
    if name in ("packages", "percent"):
        return name
    return "units" if re.search("(usage|units|quantity|size)$", name) else currency


_MINOR_DIGITS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}


def minor_digits(currency: str) -> str:
    """The number of decimals of the currency, as in ISO 4217."""
    return str(next((digits for digits, codes in _MINOR_DIGITS.items() if currency in codes.split()), 2))
