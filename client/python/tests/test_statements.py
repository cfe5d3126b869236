"""Verifies real statements, and wrong copies of them. The results must equal those of the other clients."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from odometer_client import StatementError, verify_statement

TESTDATA = Path(__file__).parents[2] / "testdata"
STATEMENTS = (TESTDATA / "statements.jsonl").read_text().splitlines()
RESULTS = json.loads((TESTDATA / "statements.json").read_text())
NUMBER = re.compile(r'(?:"name":"(\w+)",)?"(usage|unit_price|amount|event_count|above|up_to)":(-?[0-9.]+)')


@pytest.mark.parametrize(("statement", "result"), list(zip(STATEMENTS, RESULTS, strict=True)))
def test_each_change_of_an_amount_is_noticed(statement: str, result: dict[str, list[str]]) -> None:
    verify_statement(statement)
    unnoticed = []
    for n, number in enumerate(NUMBER.finditer(statement)):
        start, end = number.span(3)
        try:
            verify_statement((statement[:start] + increased(number[3]) + statement[end:]).encode())
        except StatementError:
            continue
        unnoticed.append(f"{n} {number[1] or number[2]}")
    assert unnoticed == result["unnoticed"]


LEAF = re.compile(r'\{"name":"(\w+)"[^{}]*\}')


@pytest.mark.parametrize(("statement", "result"), list(zip(STATEMENTS, RESULTS, strict=True)))
def test_each_missing_step_is_noticed(statement: str, result: dict[str, list[str]]) -> None:
    removable = []
    for n, leaf in enumerate(LEAF.finditer(statement)):
        before, after = statement[: leaf.start()], statement[leaf.end() :]
        try:
            verify_statement(before + after[1:] if after.startswith(",") else before.removesuffix(",") + after)
        except StatementError:
            continue
        removable.append(f"{n} {leaf[1]}")
    assert removable == result["removable"]


def increased(number: str) -> str:
    """Return the number plus one unit of its last digit."""
    whole, _, fraction = number.partition(".")
    digits = int(whole + fraction) + 1
    text = str(abs(digits)).zfill(len(fraction) + 1)
    if fraction:
        text = f"{text[: -len(fraction)]}.{text[-len(fraction) :]}"
    return f"-{text}" if digits < 0 else text


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [(statement, wrong) for statement, result in zip(STATEMENTS, RESULTS, strict=True) for wrong in result.get("refused", [])],
)
def test_wrong_statements_are_refused_with_the_messages_of_the_other_clients(statement: str, wrong: dict[str, Any]) -> None:
    for before, after in wrong["changes"]:
        statement = statement.replace(before, after)
    with pytest.raises((StatementError, ValueError)) as refused:
        verify_statement(statement)
    assert str(refused.value) == wrong["message"]


@pytest.mark.parametrize("body", ["", "[]", '{"type":"ping"}'])
def test_a_text_that_is_not_a_statement_is_refused(body: str) -> None:
    with pytest.raises(ValueError):
        verify_statement(body)
