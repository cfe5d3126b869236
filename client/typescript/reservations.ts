import type { Client } from "openapi-fetch";
import { v7 as newID } from "uuid";
import { asError, ProblemError, problemOf, unencodable } from "./problems.js";
import type { QuotasOptions } from "./quotas.js";
import type { components, paths } from "./schema.gen.js";

type Event = components["schemas"]["Event"];
type Refused = components["schemas"]["RefusedReservation"];

/** The body of a request that reserves. Without an id, it gets one. */
export type ReserveRequest = components["schemas"]["Reserve"];

const MAX_EVENTS = 1_000;
const FIRST_PAUSE = 100;
const LONGEST_PAUSE = 30_000;
const LONGEST_ANSWER = 10_000; // of each request that extends, settles or releases
const LONGEST_TIMER = 2 ** 31 - 1; // a timer with a longer delay fires at once

/** A hard quota has less left than an amount. */
export class QuotaExceededError extends Error {
  override name = "QuotaExceededError";

  constructor(readonly refused: Refused) {
    super(`quota ${refused.quota_id} has ${refused.remaining} left`);
  }
}

/** Usage is not reserved, because the service did not answer, with onError deny. */
export class UnavailableError extends Error {
  override name = "UnavailableError";
}

/**
 * The events of a reservation are not stored. A repeat of the request to settle with the same events counts nothing
 * twice. workError is the error of the work, if it has failed.
 */
export class SettleError extends Error {
  override name = "SettleError";

  constructor(
    readonly reservationId: string,
    readonly events: Event[],
    cause: unknown,
    readonly workError?: unknown,
  ) {
    super(`reservation ${reservationId} is not settled with ${events.length} events: ${asError(cause).message}`, { cause });
  }
}

/** An event that cannot be settled with its reservation. Send it with a Recorder. */
export class ReservationEventError extends Error {
  override name = "ReservationEventError";
}

/** A reservation while its work runs. */
export interface HeldReservation {
  readonly id: string;
  /** A soft quota has less left than an amount. */
  readonly exceeded: boolean;
  /** Adds an event of the usage, 1,000 at most. An event without a customer is one of the reservation's customer. */
  record(event: Pick<Event, "event_type"> & Partial<Event>): void;
}

/** Implements Quotas.reserve: reserves, calls work, and then settles or releases the reservation. */
export async function runReserved<Result>(
  client: Client<paths>,
  options: Required<QuotasOptions>,
  request: ReserveRequest,
  work: (reservation: HeldReservation) => Promise<Result>,
): Promise<Result> {
  const reservation = new Reservation(client, options, request);
  await reservation.reserve();
  const stop = reservation.startExtending();
  let result: Result;
  try {
    result = await work(reservation);
  } catch (error) {
    stop();
    await reservation.settleOrRelease(error);
    throw error;
  }
  stop();
  await reservation.settleOrRelease();
  return result;
}

class Reservation implements HeldReservation {
  readonly id: string;
  exceeded = false;
  readonly #client: Client<paths>;
  readonly #options: Required<QuotasOptions>;
  readonly #request: ReserveRequest & { expires_in: number };
  readonly #events: Event[] = [];
  #ended = false;

  constructor(client: Client<paths>, options: Required<QuotasOptions>, request: ReserveRequest) {
    this.#client = client;
    this.#options = options;
    this.id = request.id ?? newID();
    this.#request = { ...request, id: this.id, expires_in: request.expires_in ?? 300 };
  }

  record(event: Parameters<HeldReservation["record"]>[0]): void {
    if (this.#ended) throw new ReservationEventError("the reservation has ended; send further events with a Recorder");
    if (this.#events.length >= MAX_EVENTS) {
      throw new ReservationEventError("a reservation is settled with at most 1000 events; send further events with a Recorder");
    }
    this.#events.push({
      ...event,
      customer_id: event.customer_id ?? this.#request.customer,
      timestamp: event.timestamp ?? new Date().toISOString(),
      idempotency_key: event.idempotency_key ?? newID(),
    });
  }

  /** Reserves usage. It repeats the request until the service answers. */
  async reserve(): Promise<void> {
    const signal = AbortSignal.timeout(this.#options.timeout);
    try {
      await this.#repeatUntilAnswered(this.#options.timeout, () => this.#sendReserve(signal));
    } catch (error) {
      if (isFinal(error) || unencodable(this.#request)) throw error;
      if (this.#options.onError === "deny") {
        throw new UnavailableError(`usage is not reserved, because the service did not answer: ${asError(error).message}`, { cause: error });
      }
    }
  }

  async #sendReserve(signal: AbortSignal): Promise<void> {
    const { data, error, response } = await this.#client.POST("/v1/quotas/reserve", { body: this.#request, signal });
    if (!data) throw problemOf(response, error);
    if (!("reservation_id" in data)) throw new QuotaExceededError(data);
    this.exceeded = data.exceeded;
  }

  /** Extends the reservation until stop is called, or until the service no longer has it. */
  startExtending(): (this: void) => void {
    const half = Math.min(500 * this.#request.expires_in, LONGEST_TIMER);
    let timer: ReturnType<typeof setTimeout>;
    let stopped = false;
    const extend = async (wait: number) => {
      let next = half;
      try {
        await this.#sendExtend();
      } catch (error) {
        if (isFinal(error) || isNotFound(error)) return;
        this.#options.onFailure(asError(error));
        next = Math.max(wait / 2, FIRST_PAUSE);
      }
      if (!stopped) timer = setTimeout(() => void extend(next), next);
    };
    timer = setTimeout(() => void extend(half), half);
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }

  async #sendExtend(): Promise<void> {
    const { data, error, response } = await this.#client.POST("/v1/quotas/reservations/{id}/extend", {
      params: { path: { id: this.id } },
      body: { expires_in: this.#request.expires_in },
      signal: AbortSignal.timeout(LONGEST_ANSWER),
    });
    if (!data) throw problemOf(response, error);
  }

  /** Settles the reservation, or releases it if there are no events. */
  async settleOrRelease(workError?: unknown): Promise<void> {
    this.#ended = true;
    if (this.#events.length === 0) return this.#release();
    try {
      await this.#repeatUntilAnswered(this.#options.settleTimeout, () => this.#sendSettle());
    } catch (error) {
      if (isFinal(error)) await this.#release();
      throw new SettleError(this.id, this.#events, error, workError);
    }
  }

  async #sendSettle(): Promise<void> {
    const { data, error, response } = await this.#client.POST("/v1/quotas/reservations/{id}/settle", {
      params: { path: { id: this.id } },
      body: { events: this.#events },
      signal: AbortSignal.timeout(LONGEST_ANSWER),
    });
    if (data) return;
    const problem = problemOf(response, error);
    if (!isNotFound(problem)) throw problem;
    await this.#sendEvents();
  }

  /** Stores the events of a reservation that the service does not have. */
  async #sendEvents(): Promise<void> {
    const body = { events: this.#events };
    const { data, error, response } = await this.#client.POST("/v1/events/batch", { body, signal: AbortSignal.timeout(LONGEST_ANSWER) });
    if (!data) throw problemOf(response, error);
    const [refused] = data.errors;
    if (refused) throw new ProblemError(422, `events[${refused.index}]: ${refused.message}`);
  }

  /** A failure is only reported: the reservation expires. */
  async #release(): Promise<void> {
    const path = { id: this.id };
    try {
      const { data, error, response } = await this.#client.POST("/v1/quotas/reservations/{id}/release", {
        params: { path },
        signal: AbortSignal.timeout(LONGEST_ANSWER),
      });
      if (!data && response.status !== 404) throw problemOf(response, error);
    } catch (error) {
      this.#options.onFailure(asError(error));
    }
  }

  /** Sends a request until the service answers or the time is over, and throws the last error. */
  async #repeatUntilAnswered(timeout: number, send: () => Promise<void>): Promise<void> {
    const deadline = performance.now() + timeout;
    for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      try {
        return await send();
      } catch (error) {
        if (isFinal(error) || unencodable(this.#events)) throw error;
        this.#options.onFailure(asError(error));
        if (error instanceof ProblemError) pause = Math.max(pause, error.retryAfter);
        if (performance.now() + pause >= deadline) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}

const isFinal = (error: unknown) => error instanceof QuotaExceededError || (error instanceof ProblemError && error.isRefused);
const isNotFound = (error: unknown) => error instanceof ProblemError && error.status === 404;
