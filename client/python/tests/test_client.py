"""Tests against a running API, which go test ./cmd/odometer starts."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from decimal import Decimal

import pytest

from odometer_client import Client, OdometerError, ProblemError, QuotaExceededError, Quotas, Recorder, UnencodableError
from odometer_client.schema import Event, Message, SetPricing

PRECISE = Decimal("123456789012345678.123456789012")
CUSTOMER = "a/b ?#%é"
HOUR = 3600.0  # longer than any test takes, even on a busy machine


@pytest.fixture(scope="module")
def client() -> Client:
    client = Client(os.environ["ODOMETER_URL"], os.environ["ODOMETER_API_KEY"], timeout=HOUR)
    client.create_meter({"slug": "python-calls", "event_type": "python-call"})
    sent: Event = {
        "event_type": "python-call",
        "customer_id": CUSTOMER,
        "value": PRECISE,
        "properties": {"value": 5, "deep": [{"total": 1.5}]},
    }
    assert client.ingest_events({"events": [sent]})["accepted"] == 1
    return client


def test_a_decimal_keeps_its_digits_in_every_answer(client: Client) -> None:
    assert client.get_usage_total(customer=CUSTOMER)["total"] == PRECISE
    usage = client.get_usage(meter="python-calls", customer=CUSTOMER)
    assert usage["groups"][0]["windows"][0]["value"] == PRECISE
    assert usage["groups"][0]["windows"][0]["is_final"] is False
    comparison = client.get_usage_comparison(meter="python-calls", customer=CUSTOMER)
    assert comparison == {"current_total": PRECISE, "previous_total": 0, "delta": PRECISE, "percent_change": 100}
    assert isinstance(comparison["previous_total"], Decimal)


def test_an_exported_event_has_the_value_and_properties_that_were_sent(client: Client) -> None:
    exported = client.export_usage(customer=CUSTOMER)
    assert not isinstance(exported, str)
    assert exported["data"][0]["value"] == PRECISE
    assert exported["data"][0]["properties"] == {"value": 5, "deep": [{"total": 1.5}]}
    csv = client.export_usage(customer=CUSTOMER, format="csv")
    assert isinstance(csv, str)
    assert str(PRECISE) in csv


def test_a_price_is_charged_to_the_last_digit(client: Client) -> None:
    terms: SetPricing = {"base_price": Decimal("1E-12"), "included_units": Decimal(0), "overage_rate": Decimal(1)}
    with pytest.raises(ProblemError) as refused:
        client.set_pricing("python-calls", terms)
    assert refused.value.confirmation is not None
    price = client.set_pricing("python-calls", {**terms, "confirm": refused.value.confirmation["token"]})
    assert price["current"]["base_price"] == Decimal("0.000000000001")
    assert client.preview_billing(customer=CUSTOMER)[0]["amount"] == Decimal("123456789012345678.123456789013")


def test_decimals_in_a_list_keep_their_digits(client: Client) -> None:
    created = client.create_alert(
        {"name": "Budget", "type": "usage", "all": True, "meter": "python-calls", "thresholds": [Decimal(1), PRECISE]}
    )
    assert created["thresholds"] == [1, PRECISE]
    assert isinstance(created["thresholds"][0], Decimal)


def test_a_filter_by_a_property_is_sent_as_a_query_parameter(client: Client) -> None:
    with pytest.raises(ProblemError) as refused:
        client.get_usage(meter="python-calls", customer=CUSTOMER, filter={"filter.model": "large"})
    assert refused.value.errors[0]["location"] == "query.filter.model"


def test_usage_is_grouped_by_a_list_of_properties(client: Client) -> None:
    client.create_meter({"slug": "python-groups", "event_type": "python-group", "group_by": ["a,b", "c", "d"]})
    client.ingest_event({"event_type": "python-group", "customer_id": CUSTOMER, "properties": {"a,b": 1, "c": "2"}})
    groups = client.get_usage(meter="python-groups", customer=CUSTOMER, group_by=["a,b", "c"])["groups"]
    assert [(group["group_key"], group["filter"]) for group in groups] == [({"a,b": 1, "c": "2"}, "filter.a%2Cb=1&filter.c=%222%22")]


def test_a_customer_is_found_by_an_id_with_special_characters(client: Client) -> None:
    assert client.get_customer(CUSTOMER)["external_id"] == CUSTOMER
    for name in ("..", "by-external-id"):
        assert client.upsert_customer("by-external-id", {"name": "Odd"}, query_external_id=name)["external_id"] == name
        assert client.get_customer_by_external_id(external_id=name)["name"] == "Odd"


def test_a_time_is_a_datetime_with_a_time_zone_or_a_text(client: Client) -> None:
    later = datetime(2100, 1, 1, tzinfo=timezone.utc)
    with pytest.raises(ProblemError) as future:
        client.get_usage_total(customer=CUSTOMER, start=later, end="2000-01-01T00:00:00Z")
    assert future.value.status == 422
    with pytest.raises(ValueError, match="time zone"):
        client.get_usage_total(customer=CUSTOMER, start=later.replace(tzinfo=None))


def test_an_error_response_raises_problem_error(client: Client) -> None:
    with pytest.raises(ProblemError) as nobody:
        client.get_customer("nobody")
    assert (nobody.value.status, nobody.value.code) == (404, "not_found")
    with pytest.raises(ProblemError) as invalid:
        client.create_meter({"slug": "No Slug", "event_type": "call"})
    assert invalid.value.errors[0]["location"] == "body.slug"


def test_a_value_that_json_cannot_represent_is_not_sent(client: Client) -> None:
    for value in (Decimal("NaN"), float("inf"), object()):
        with pytest.raises(UnencodableError):
            client.ingest_event({"event_type": "python-call", "customer_id": "acme", "value": value})  # type: ignore[typeddict-item]


def test_an_unreachable_service_raises_odometer_error() -> None:
    with pytest.raises(OdometerError, match="did not answer"):
        Client("http://127.0.0.1:1").get_health()


def test_a_recorder_counts_each_event_once(client: Client) -> None:
    with Recorder(client, batch=7) as recorder:
        for _ in range(100):
            recorder.record({"event_type": "python-call", "customer_id": "recorded"})
    assert client.get_usage_total(customer="recorded")["total"] == 100


def describe(body: str) -> str:
    message: Message = json.loads(body, parse_float=Decimal)
    if message["type"] == "sync.failed":
        return f"{message['data']['customer_external_id']}: {message['data']['error']}"
    if message["type"] == "discrepancy.detected":
        data = message["data"]
        return data["day"] if data["kind"] == "usage_discrepancy" else f"{data['meter_slug']}: {data['unexplained']} units are unexplained"
    return ""


def test_messages_are_distinguished_by_their_type() -> None:
    failed = '{"type":"sync.failed","data":{"customer_external_id":"acme","error":"the webhook answered 401"}}'
    assert describe(failed) == "acme: the webhook answered 401"
    assert describe('{"type":"discrepancy.detected","data":{"kind":"usage_discrepancy","day":"2026-12-03"}}') == "2026-12-03"
    disputed = f'{{"type":"discrepancy.detected","data":{{"kind":"reconciliation_disputed","meter_slug":"calls","unexplained":{PRECISE}}}}}'
    assert describe(disputed) == f"calls: {PRECISE} units are unexplained"


def test_a_reservation_keeps_a_customer_within_a_quota(client: Client) -> None:
    client.create_customer({"external_id": "limited"})
    client.set_quota({"customer": "limited", "meter": "python-calls", "limit": PRECISE, "mode": "hard", "period": "month"})
    quotas = Quotas(client, on_error="deny", max_staleness=HOUR, timeout=HOUR, settle_timeout=HOUR)
    with quotas.reserve("limited", [{"meter": "python-calls", "amount": PRECISE}]) as reservation:
        with pytest.raises(QuotaExceededError), quotas.reserve("limited", [{"meter": "python-calls", "amount": Decimal(1)}]):
            pass
        reservation.record("python-call", value=Decimal(123456789012345678))
    remaining = [quotas.check("limited", "python-calls", Decimal(amount)).remaining for amount in ("0.1", "0.02")]
    assert remaining == [Decimal("0.123456789012"), Decimal("0.023456789012")]
    unlimited = [quotas.check(CUSTOMER, "python-calls", PRECISE) for _ in range(2)]
    assert [(each.allowed, each.remaining) for each in unlimited] == [(True, None)] * 2
