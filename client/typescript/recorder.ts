import type { Client } from "openapi-fetch";
import { v7 as newKey } from "uuid"; // in the order of time: the service finds and stores them at the least cost, however many it knows
import { retryAfter, unencodable } from "./problems.js";
import type { components, paths } from "./schema.gen.js";

type Event = components["schemas"]["Event"];
type IngestError = components["schemas"]["IngestError"];

const MAX_BATCH = 1_000;
const FIRST_PAUSE = 100;
const LONGEST_PAUSE = 30_000;
const LONGEST_ANSWER = 60_000;
const LONGEST_TIMER = 2 ** 31 - 1; // timers that are set to more end at once
const REFUSED = new Set([400, 413, 422]); // the answer is about the events themselves: they would be refused again, whoever sends them

/** Events are recorded faster than the service takes them. */
export class BufferFullError extends Error {
  override name = "BufferFullError";
}

/** The recorder takes no more events. */
export class ClosedError extends Error {
  override name = "ClosedError";
}

/** Time has run out, and events are not sent. */
export class UnsentError extends Error {
  override name = "UnsentError";
}

/** Times are in milliseconds. */
export interface RecorderOptions {
  /** How long an event waits for others to share its request: 1,000. */
  every?: number;
  /** How many events make a request at once, 1,000 at most and by default. */
  batch?: number;
  /** How many events may wait before record throws BufferFullError: 100,000. */
  buffer?: number;
  /** How long the program's end waits for what is not sent: 10,000. */
  exitTimeout?: number;
  /** Told of an event that the service will never take, and why. It is logged without. */
  onRejected?: (event: Event, reason: string) => void;
  /** Told why events were not taken that are kept and sent again, at each attempt. It is logged without. */
  onRetry?: (error: Error) => void;
}

/**
 * Sends events in the background, in batches.
 *
 * Each event's idempotency key and timestamp are made once, when it is recorded, and a batch is repeated with the
 * same ones until the service has answered: an event counts once, whatever happens on the way. A key that was rotated
 * or lacks a permission, or a service that is elsewhere for a while, loses nothing: only an event that the service
 * refuses for what it is is given up, and onRejected is told of it.
 *
 * What is recorded is kept in memory. close sends the rest. So does Node, for exitTimeout, when a program has nothing
 * more to do; where one ends by process.exit, by a signal or by an exception, close first.
 */
export class Recorder {
  readonly #client: Client<paths>;
  readonly #options: Required<RecorderOptions>;
  readonly #settled = new Set<() => void>(); // who waits until nothing is pending
  readonly #atExit = () => void this.#exit();

  #buffer: Event[] = [];
  #pending = 0; // events recorded and not yet settled, those being sent included
  #failure: Error | undefined; // of the last attempt; undefined: it was answered
  #timer: ReturnType<typeof setTimeout> | undefined; // until events that wait for others are sent
  #working = false;
  #closed = false;
  #stopped = false;
  #interrupt = () => {}; // ends the request or the pause that is under way

  constructor(client: Client<paths>, options: RecorderOptions = {}) {
    this.#client = client;
    this.#options = { every: 1_000, batch: MAX_BATCH, buffer: 100_000, exitTimeout: 10_000, onRejected: logRejected, onRetry: logRetry, ...options };
    this.#options.batch = Math.min(Math.max(this.#options.batch, 1), MAX_BATCH);
    globalThis.process?.on?.("beforeExit", this.#atExit);
  }

  /** Takes an event and does not wait for the network. Without a timestamp it happened now; without a key it gets one. */
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

  /** Sends what is recorded and returns when every event is settled. UnsentError when the timeout is over first. */
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

  /** Takes no more events, sends the rest, and ends the recorder. UnsentError says how many events are lost. */
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
   * Repeats a batch until the service has decided on each of its events. Of a batch that it refuses only the events are
   * given up that it refuses alone.
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
        this.#failed(error instanceof Error ? error : new Error(String(error))); // whatever it is, the events are kept
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

/** A timer that does not keep a program from its end. */
function quietly(call: () => void, after: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(call, after);
  timer.unref?.(); // browsers have none
  return timer;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
