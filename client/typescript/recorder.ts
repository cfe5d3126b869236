import type { Client } from "openapi-fetch";
import { v7 as newKey } from "uuid"; // in the order of time: the service finds and stores them at the lowest cost, however many it has
import { retryAfter, unencodable } from "./problems.js";
import type { components, paths } from "./schema.gen.js";

type Event = components["schemas"]["Event"];
type IngestError = components["schemas"]["IngestError"];

const MAX_BATCH = 1_000;
const FIRST_PAUSE = 100;
const LONGEST_PAUSE = 30_000;
const LONGEST_ANSWER = 60_000;
const LONGEST_TIMER = 2 ** 31 - 1; // a timer with a longer delay fires at once
const REFUSED = new Set([400, 413, 422]); // about the events themselves: the service would refuse them again, with any API key

/** Reports that events are recorded faster than the service accepts them. */
export class BufferFullError extends Error {
  override name = "BufferFullError";
}

/** Reports that the recorder accepts no more events. */
export class ClosedError extends Error {
  override name = "ClosedError";
}

/** Reports that the timeout ended before all events were sent. */
export class UnsentError extends Error {
  override name = "UnsentError";
}

/** Options of a Recorder. Times are in milliseconds. */
export interface RecorderOptions {
  /** Maximum time that an event waits for others to share its request: 1,000 by default. */
  every?: number;
  /** Maximum number of events in a request: 1,000 by default and at most. */
  batch?: number;
  /** Number of unsettled events at which record throws BufferFullError: 100,000 by default. */
  buffer?: number;
  /** Maximum time that the end of the program waits for unsent events: 10,000 by default. */
  exitTimeout?: number;
  /** Called with each event that is rejected permanently, and the reason. By default, the rejection is logged. */
  onRejected?: (event: Event, reason: string) => void;
  /**
   * Called with the reason after each failed attempt. The events are kept and sent again. By default, the reason is
   * logged.
   */
  onRetry?: (error: Error) => void;
}

/**
 * Sends events in the background, in batches.
 *
 * Sets the idempotency key and the timestamp of each event once, when the event is recorded, and repeats a batch
 * unchanged until the service has answered. So an event counts once, even if requests or answers are lost.
 *
 * An API key that was rotated or lacks a permission loses no event, and neither does an outage. The recorder discards
 * only events that cannot be encoded or that the service rejects because of their content, and calls onRejected.
 *
 * Recorded events are kept in memory. close sends the rest. When a program has nothing more to do, Node also sends the
 * rest, for at most exitTimeout. If a program ends by process.exit, by a signal or by an exception, call close first.
 */
export class Recorder {
  readonly #client: Client<paths>;
  readonly #options: Required<RecorderOptions>;
  readonly #settled = new Set<() => void>(); // callbacks of the calls that wait until nothing is pending
  readonly #atExit = () => void this.#exit();

  #buffer: Event[] = [];
  #pending = 0; // events recorded and not yet settled, including those in a request
  #failure: Error | undefined; // error of the last attempt; undefined: none, or events were settled since
  #timer: ReturnType<typeof setTimeout> | undefined; // starts the request of the events that wait for others
  #working = false;
  #closed = false;
  #stopped = false;
  #interrupt = () => {}; // ends the current request or pause

  constructor(client: Client<paths>, options: RecorderOptions = {}) {
    this.#client = client;
    this.#options = { every: 1_000, batch: MAX_BATCH, buffer: 100_000, exitTimeout: 10_000, onRejected: logRejected, onRetry: logRetry, ...options };
    this.#options.batch = Math.min(Math.max(this.#options.batch, 1), MAX_BATCH);
    globalThis.process?.on?.("beforeExit", this.#atExit);
  }

  /**
   * Accepts an event without waiting for the network. The default timestamp is now. The default idempotency key is a
   * UUID of version 7.
   */
  record(event: Event): void {
    if (this.#closed) throw new ClosedError("the recorder is closed");
    if (this.#pending >= this.#options.buffer) throw new BufferFullError("the recorder's buffer is full");
    this.#buffer.push({
      ...event,
      timestamp: event.timestamp ?? new Date().toISOString(),
      idempotency_key: event.idempotency_key ?? newKey(),
    });
    this.#pending++;
    if (this.#buffer.length >= this.#options.batch) void this.#work();
    else this.#timer ??= quietly(() => void this.#work(), this.#options.every);
  }

  /** Sends the recorded events, and returns once all are settled. Throws UnsentError if the timeout ends first. */
  async flush(timeout = LONGEST_TIMER): Promise<void> {
    if (this.#pending === 0) return;
    void this.#work();
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#settled.delete(done);
        reject(new UnsentError(`${this.#pending} events are not sent: ${this.#failure?.message ?? "no time was left"}`));
      }, Math.min(timeout, LONGEST_TIMER));
      const done = () => {
        clearTimeout(timer);
        resolve();
      };
      this.#settled.add(done);
    });
  }

  /**
   * Accepts no more events, sends the rest, and ends the recorder. If the timeout ends first, throws UnsentError with
   * the number of lost events.
   */
  async close(timeout?: number): Promise<void> {
    this.#closed = true;
    try {
      await this.flush(timeout);
    } finally {
      globalThis.process?.off?.("beforeExit", this.#atExit);
      this.#stopped = true;
      clearTimeout(this.#timer);
      this.#interrupt();
    }
  }

  async #exit(): Promise<void> {
    try {
      await this.close(this.#options.exitTimeout);
    } catch (error) {
      console.error(`events are lost: ${messageOf(error)}`);
    }
  }

  async #work(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#working) return;
    this.#working = true;
    while (this.#buffer.length > 0 && !this.#stopped) await this.#send(this.#buffer.splice(0, this.#options.batch));
    this.#working = false;
  }

  /**
   * Repeats a batch until the service has decided on each of its events. A refused batch is divided, so that only
   * events that the service refuses on their own are discarded.
   */
  async #send(batch: Event[]): Promise<void> {
    for (let pause = FIRST_PAUSE; !this.#stopped; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      let wait = pause;
      try {
        const { data, error, response } = await this.#ingest(batch);
        if (data) return this.#settle(batch, data.errors);
        const failure = new Error(`the service answered ${response.status}: ${error?.detail ?? ""}`);
        if (REFUSED.has(response.status)) return await this.#divide(batch, failure);
        wait = Math.max(pause, retryAfter(response));
        this.#failed(failure);
      } catch (error) {
        if (this.#stopped) return;
        if (unencodable(batch)) return await this.#divide(batch, error);
        this.#failed(error instanceof Error ? error : new Error(String(error))); // after any other error, the events are kept
      }
      await this.#rest(wait);
    }
  }

  async #ingest(batch: Event[]) {
    const request = new AbortController();
    this.#interrupt = () => request.abort();
    const timer = quietly(() => request.abort(new Error("the service does not answer")), LONGEST_ANSWER);
    try {
      return await this.#client.POST("/v1/events/batch", { body: { events: batch }, signal: request.signal });
    } finally {
      clearTimeout(timer);
    }
  }

  async #rest(pause: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = quietly(resolve, Math.min(pause, LONGEST_TIMER));
      this.#interrupt = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async #divide(batch: Event[], error: unknown): Promise<void> {
    const [only] = batch;
    if (only && batch.length === 1) {
      this.#reject(only, messageOf(error));
      this.#forget(1);
      return;
    }
    const half = Math.floor(batch.length / 2);
    await this.#send(batch.slice(0, half));
    await this.#send(batch.slice(half));
  }

  #settle(batch: Event[], rejected: IngestError[]): void {
    for (const { index, code, message } of rejected) {
      const event = batch[index];
      if (event) this.#reject(event, `${code}: ${message}`);
    }
    this.#forget(batch.length);
  }

  #forget(settled: number): void {
    this.#pending -= settled;
    this.#failure = undefined;
    if (this.#pending > 0) return;
    for (const done of this.#settled) done();
    this.#settled.clear();
  }

  #failed(error: Error): void {
    this.#failure = error;
    try {
      this.#options.onRetry(error);
    } catch (failure) {
      console.error("onRetry failed", failure);
    }
  }

  #reject(event: Event, reason: string): void {
    try {
      this.#options.onRejected(event, reason);
    } catch (failure) {
      console.error("onRejected failed", failure);
    }
  }
}

function logRejected(event: Event, reason: string): void {
  console.error(`event rejected: ${event.event_type}: ${reason}`);
}

function logRetry(error: Error): void {
  console.warn(`events not sent yet: ${error.message}`);
}

/** Starts a timer that does not keep the program running. */
function quietly(call: () => void, after: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(call, after);
  timer.unref?.(); // browsers have no unref
  return timer;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
