"""Meters and limits a model behind a WSGI application."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING

import httpx

from examples.limit import customer_of, refuse, respond
from odometer_client import HeldReservation, QuotaExceededError, Quotas, SettleError, UnavailableError
from odometer_client.client import decode

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def proxy_model(quotas: Quotas, url: str) -> WSGIApplication:
    """Passes requests to the model at url. It reserves the most tokens that a request can use, and settles the reservation with the
    tokens that the model reports."""

    def proxy(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        prompt = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        max_tokens = max_tokens_of(prompt)
        if max_tokens is None:
            return respond(start_response, "400 Bad Request", "the body must be JSON with max_tokens")
        most = Decimal(len(prompt) + max_tokens)  # a token of the prompt has at least one byte
        completion = b""
        try:
            with quotas.reserve(customer_of(environ), [{"meter": "tokens", "amount": most}]) as reservation:
                completion = complete(url, prompt, reservation)
        except QuotaExceededError as error:
            return refuse(start_response, error.refused["resets_at"])
        except UnavailableError:
            return respond(start_response, "503 Service Unavailable", "quotas are not available")
        except httpx.HTTPError:
            return respond(start_response, "502 Bad Gateway", "the model is not available")
        except SettleError as error:
            logging.error("%s", error)  # store error.events, and settle them later
        start_response("200 OK", [("Content-Type", "application/json")])
        return [completion]

    return proxy


def complete(url: str, prompt: bytes, reservation: HeldReservation) -> bytes:
    """Sends the prompt to the model, and records the tokens that the model reports."""
    response = httpx.post(url, content=prompt, timeout=600).raise_for_status()
    completion = decode(response.content)
    reservation.record("completion", value=completion["usage"]["total_tokens"], properties={"model": completion["model"]})
    return response.content


def max_tokens_of(prompt: bytes) -> int | None:
    try:
        tokens = decode(prompt)["max_tokens"]
    except (ValueError, KeyError, TypeError):
        return None
    return tokens if isinstance(tokens, int) and tokens > 0 else None
