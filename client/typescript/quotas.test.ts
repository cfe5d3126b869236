import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";
import {
  createClient,
  ProblemError,
  QuotaExceededError,
  Quotas,
  ReservationEventError,
  UnavailableError,
  SettleError,
  type HeldReservation,
  type QuotasOptions,
  type Schema,
} from "./client.js";
import { limitCalls } from "./examples/limit.js";
import { proxyModel } from "./examples/proxy.js";

const SERVE = 200;
const NO_ANSWER = 0; // the connection breaks before the request is processed
const HANG = -1; // no response until the request is aborted
const LOST = -2; // the request is processed, then the connection breaks

/** Simulates the quota API with one hard quota for the meter calls. It ignores the customer. */
class Service {
  used = 0;
  resetsAt: string | null = null;
  held = new Map<string, number>();
  settled = new Map<string, Schema<"Event">[]>();
  stored: Schema<"Event">[] = []; // events sent without a reservation
  requests: string[] = []; // last path segment of each request
  failures: Record<string, number[]> = {}; // next results (a status, or a constant above), by last path segment
  answered = (_last: string) => {};

  constructor(readonly limit: number) {}

  fetch = async (request: Request): Promise<Response> => {
    const [id = "", last = ""] = new URL(request.url).pathname.split("/").slice(-2);
    this.requests.push(last);
    const failure = this.failures[last]?.shift() ?? SERVE;
    if (failure === NO_ANSWER) throw new TypeError("the connection broke");
    if (failure === HANG) return hang(request.signal);
    if (failure > 0 && failure !== SERVE) return answer(failure, { status: failure, detail: "no" });
    const text = await request.text();
    const response = this.serve(last, id, text ? JSON.parse(text) : {});
    if (failure === LOST) throw new TypeError("the connection broke");
    this.answered(last);
    return response;
  };

  get left(): number {
    return Math.max(this.limit - this.used - [...this.held.values()].reduce((sum, amount) => sum + amount, 0), 0);
  }

  serve(last: string, id: string, body: any): Response {
    switch (last) {
      case "check": {
        const [check] = body.checks;
        if (check.meter !== "calls") return answer(422, { detail: "there is no such meter" });
        const allowed = check.amount <= this.left;
        const level = { used: this.used, reserved: 0, limit: this.limit, remaining: this.left, resets_at: this.resetsAt, quota_id: "quo_5" };
        return answer(200, { data: [{ allowed, exceeded: !allowed, ...level }] });
      }
      case "reserve": {
        const [{ amount }] = body.amounts;
        const refused = { allowed: false, quota_id: "quo_5", remaining: this.left, resets_at: this.resetsAt };
        if (!this.held.has(body.id) && amount > this.left) return answer(200, refused);
        this.held.set(body.id, amount);
        return answer(201, { reservation_id: body.id, allowed: true, exceeded: false });
      }
      case "batch":
        this.stored.push(...body.events);
        return answer(200, { accepted: body.events.length, errors: [] });
    }
    if (last === "settle" && this.settled.has(id)) return answer(200, { accepted: 1 });
    if (!this.held.has(id)) return answer(404, { detail: "there is no such reservation" });
    if (last === "settle") this.settled.set(id, body.events);
    if (last !== "extend") this.held.delete(id);
    return answer(200, {});
  }

  count = (last: string) => this.requests.filter((each) => each === last).length;
}

const answer = (status: number, body: object) =>
  new Response(JSON.stringify(body), { status, headers: { "Content-Type": status < 400 ? "application/json" : "application/problem+json" } });

/** Waits until the request is aborted, and keeps the program running, as an open connection does. */
function hang(signal: AbortSignal): Promise<Response> {
  const connection = setInterval(() => {}, HOUR);
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => {
      clearInterval(connection);
      reject(signal.reason as Error);
    });
  });
}

const HOUR = 3_600_000;

const quotasOf = (service: Service, options: Partial<QuotasOptions> = {}) =>
  new Quotas(createClient({ baseUrl: "http://odometer", fetch: service.fetch }), {
    onError: "deny",
    maxStaleness: 0,
    timeout: HOUR,
    settleTimeout: HOUR,
    onFailure() {},
    ...options,
  });

const calls = (amount: string) => ({ customer: "acme", meter: "calls", amount });
const usage = { customer: "acme", amounts: [{ meter: "calls", amount: "5" }] };
const recordCall = async (reservation: HeldReservation) => reservation.record({ event_type: "call" });

/** Sets the clock of the caches, and returns a function that advances it. */
function mockClock(t: TestContext): (by: number) => void {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  return (by) => (now += by);
}

test("invalid options are refused", () => {
  const service = new Service(0);
  assert.throws(() => quotasOf(service, { onError: "maybe" as "deny" }), /onError must be allow or deny/);
  assert.throws(() => quotasOf(service, { maxStaleness: -1 }), /maxStaleness must be zero or more/);
});

test("without a cache, each check is a request", async () => {
  const service = new Service(2);
  const quotas = quotasOf(service);
  for (let i = 0; i < 3; i++) assert.equal((await quotas.check(calls("2"))).allowed, true);
  assert.equal((await quotas.check(calls("3"))).allowed, false);
  assert.equal(service.count("check"), 4);
});

test("later allowed amounts are subtracted from a cached answer", async () => {
  const service = new Service(10);
  const quotas = quotasOf(service, { maxStaleness: HOUR });
  const results = [];
  for (let i = 0; i < 4; i++) results.push(await quotas.check(calls("2.5")));
  assert.deepEqual(results.map((each) => [each.allowed, each.remaining, each.used]), [
    [true, "10", "0"],
    [true, "7.5", "2.5"],
    [true, "5", "5"],
    [true, "2.5", "7.5"],
  ]);
  assert.equal(service.count("check"), 1);
  service.used = 10; // the allowed amounts are stored by now
  assert.equal((await quotas.check(calls("2.5"))).allowed, false);
  assert.equal(service.count("check"), 2);
});

test("amounts of concurrent checks are subtracted", async () => {
  const service = new Service(10);
  const quotas = quotasOf(service, { maxStaleness: HOUR });
  await Promise.all(Array.from({ length: 4 }, () => quotas.check(calls("2"))));
  assert.equal((await quotas.check(calls("2"))).remaining, "2");
  assert.equal(service.count("check"), 4);
});

test("a denial is repeated for the same or a larger amount", async () => {
  const service = new Service(10);
  const quotas = quotasOf(service, { maxStaleness: HOUR });
  for (const amount of ["11", "11", "12"]) assert.equal((await quotas.check(calls(amount))).allowed, false);
  assert.equal(service.count("check"), 1);
  assert.equal((await quotas.check(calls("10"))).allowed, true);
});

test("an answer is used until its age is maxStaleness", async (t) => {
  const advance = mockClock(t);
  const service = new Service(10);
  const quotas = quotasOf(service, { maxStaleness: 5_000 });
  await quotas.check(calls("1"));
  advance(4_999);
  await quotas.check(calls("1"));
  assert.equal(service.count("check"), 1);
  service.used = 10;
  advance(1);
  assert.equal((await quotas.check(calls("1"))).allowed, false);
});

test("an answer is used until the period ends", async () => {
  const service = new Service(0);
  service.resetsAt = new Date(0).toISOString();
  const quotas = quotasOf(service, { maxStaleness: HOUR });
  await quotas.check(calls("1"));
  await quotas.check(calls("1"));
  assert.equal(service.count("check"), 2);
});

for (const onError of ["allow", "deny"] as const) {
  test(`without an answer, onError decides: ${onError}`, async () => {
    const service = new Service(10);
    service.failures.check = [NO_ANSWER, HANG, 503, 401];
    const quotas = quotasOf(service, { onError, maxStaleness: HOUR, timeout: 50 });
    for (let i = 0; i < 4; i++) {
      const { allowed, failure } = await quotas.check(calls("1"));
      assert.equal(allowed, onError === "allow");
      assert.ok(failure);
    }
  });
}

test("a check of an unknown meter is an error", async () => {
  await assert.rejects(quotasOf(new Service(10), { onError: "allow" }).check({ ...calls("1"), meter: "cals" }), ProblemError);
});

test("a reservation is settled with the events of the work", async () => {
  const service = new Service(10);
  const result = await quotasOf(service).reserve(usage, async (reservation) => {
    await recordCall(reservation);
    return "done";
  });
  assert.equal(result, "done");
  const [[event] = []] = service.settled.values();
  assert.equal(event?.customer_id, "acme");
  assert.ok(event.idempotency_key && event.timestamp);
  assert.equal(service.held.size, 0);
});

for (const records of [false, true]) {
  test(`work that throws ends the reservation, ${records ? "with" : "without"} events`, async () => {
    const service = new Service(10);
    const work = async (reservation: HeldReservation) => {
      if (records) await recordCall(reservation);
      throw new Error("the model failed");
    };
    await assert.rejects(quotasOf(service).reserve(usage, work), { message: "the model failed" });
    assert.deepEqual([service.held.size, service.settled.size, service.count("release")], records ? [0, 1, 0] : [0, 0, 1]);
  });
}

test("a reservation without events is released", async () => {
  const service = new Service(10);
  await quotasOf(service).reserve(usage, async () => {});
  assert.deepEqual([service.held.size, service.count("release")], [0, 1]);
});

test("work is not called beyond a quota", async () => {
  const work = () => assert.fail("the work was called");
  await assert.rejects(quotasOf(new Service(4), { onError: "allow" }).reserve(usage, work), (error) => {
    assert.ok(error instanceof QuotaExceededError);
    return error.refused.remaining === "4";
  });
});

test("requests are repeated with one id until they are answered", async () => {
  const service = new Service(5); // a second reservation would not fit
  service.failures = { reserve: [LOST, 503, LOST], settle: [LOST, 429, 401] };
  await quotasOf(service).reserve(usage, recordCall);
  assert.deepEqual([service.count("reserve"), service.count("settle"), service.settled.size, service.held.size], [4, 4, 1, 0]);
});

test("a reservation is extended while the work runs", async () => {
  const service = new Service(10);
  service.failures.extend = [503];
  await quotasOf(service).reserve({ ...usage, expires_in: 1 }, async (reservation) => {
    let extended = 0;
    await new Promise<void>((resolve) => (service.answered = (last) => last === "extend" && ++extended === 2 && resolve()));
    await recordCall(reservation);
  });
  assert.equal(service.settled.size, 1);
});

for (const [reason, failures, held] of [["not answered", [503, 503, 503, 503, 503], 1], ["refused", [422], 0]] as const) {
  test(`a settlement that is ${reason} returns the events`, async () => {
    const service = new Service(10);
    service.failures.settle = [...failures];
    await assert.rejects(quotasOf(service, { settleTimeout: 200 }).reserve(usage, recordCall), (error) => {
      assert.ok(error instanceof SettleError);
      assert.equal(error.events.length, 1);
      return service.held.size === held;
    });
  });
}

test("without an answer, work is denied or its events are stored", async () => {
  const service = new Service(10);
  service.failures = { reserve: [HANG, HANG], batch: [404, LOST] };
  await assert.rejects(quotasOf(service, { timeout: 50 }).reserve(usage, recordCall), UnavailableError);
  await quotasOf(service, { timeout: 50, onError: "allow" }).reserve(usage, recordCall);
  assert.equal(service.stored.length, 2);
  assert.equal(service.stored[0]?.idempotency_key, service.stored[1]?.idempotency_key);
});

test("events after the 1000th or after the end of the reservation are refused", async () => {
  const service = new Service(10);
  const reservation = await quotasOf(service).reserve(usage, async (reservation) => {
    for (let i = 0; i < 1_000; i++) await recordCall(reservation);
    assert.throws(() => reservation.record({ event_type: "call" }), ReservationEventError);
    return reservation;
  });
  assert.throws(() => reservation.record({ event_type: "call" }), ReservationEventError);
});

const request = (body?: string) => new Request("http://example.com", { method: "POST", headers: { "X-Customer": "acme" }, ...(body && { body }) });

test("the example limits calls", async () => {
  const service = new Service(1);
  service.resetsAt = "2999-01-01T00:00:00Z";
  service.failures.check = [200, 200, 503, 422];
  const handle = limitCalls(quotasOf(service), "calls", async () => new Response(null, { status: 204 }));
  assert.equal((await handle(request())).status, 204);
  service.used = 1;
  const refused = await handle(request());
  assert.equal(refused.status, 429);
  assert.ok(Number(refused.headers.get("Retry-After")) > 0);
  for (let i = 0; i < 2; i++) assert.equal((await handle(request())).status, 503);
});

test("the example limits a model", async () => {
  const service = new Service(100);
  service.resetsAt = "2999-01-01T00:00:00Z";
  let status = 200;
  const model = createServer((_, response) => response.writeHead(status).end('{"model":"large","usage":{"total_tokens":42}}'));
  await new Promise<void>((resolve) => model.listen(0, "127.0.0.1", resolve));
  const handle = proxyModel(quotasOf(service), `http://127.0.0.1:${(model.address() as AddressInfo).port}`);
  try {
    assert.match(await (await handle(request('{"max_tokens":50}'))).text(), /"total_tokens":42/);
    assert.equal([...service.settled.values()][0]?.[0]?.value, 42);
    assert.equal((await handle(request('{"max_tokens":500}'))).status, 429);
    assert.equal((await handle(request("{}"))).status, 400);
    status = 500;
    assert.equal((await handle(request('{"max_tokens":50}'))).status, 502);
    assert.deepEqual([service.held.size, service.settled.size], [0, 1]);
  } finally {
    model.close();
    model.closeAllConnections();
  }
});
