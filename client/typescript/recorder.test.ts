import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, beforeEach, test } from "node:test";
import { BufferFullError, ClosedError, createClient, Recorder, UnsentError, type RecorderOptions, type Schema } from "./client.js";

type Event = Schema<"Event">;

const TAKE = 0;
const CUT = -1;
const HANGS = 300_000; // ms after which a test has hung, even on a busy machine

/** Simulates the Events API. Each request that passes the checks of most and refused gets the next result of script. */
class Service {
  script = [TAKE]; // one result per request: a status, TAKE or CUT; the last one is repeated
  most = Infinity; // maximum number of events in a request
  refused = ""; // customer id of refused events; "": none
  refusal = 422;
  rejected: Schema<"IngestError">[] = [];
  keys = new Map<string, number>();
  pause = "";
  server: Server = createServer((request, response) => void this.answer(request, response));

  async listen(): Promise<this> {
    await new Promise<void>((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.server.close();
    this.server.closeAllConnections();
  }

  step(events: Event[]): number {
    if (events.length > this.most) return 413;
    if (events.some((event) => event.customer_id === this.refused)) return this.refusal;
    for (const { idempotency_key: key = "" } of events) this.keys.set(key, (this.keys.get(key) ?? 0) + 1);
    return (this.script.length > 1 ? this.script.shift() : this.script[0]) ?? TAKE;
  }

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = "";
    for await (const chunk of request.setEncoding("utf8")) text += chunk;
    const { events } = JSON.parse(text) as { events: Event[] };
    const status = this.step(events);
    if (status === CUT) {
      request.socket.destroy();
      return;
    }
    if (this.pause) response.setHeader("Retry-After", this.pause);
    response.setHeader("Content-Type", status ? "application/problem+json" : "application/json");
    response.writeHead(status || 200);
    const taken = { accepted: events.length, rejected: 0, duplicates: 0, warnings: [], errors: this.rejected };
    response.end(JSON.stringify(status ? { status, detail: "no", code: "no" } : taken));
  }
}

let service: Service;
const services: Service[] = [];
beforeEach(async () => {
  service = await new Service().listen();
  services.push(service);
});
after(() => services.forEach((each) => each.close()));

const call = (customer = "acme"): Event => ({ event_type: "call", customer_id: customer });
const counts = () => [...service.keys.values()];

function recorded(events: number, options: RecorderOptions = {}): Recorder {
  const quiet = { onRetry() {}, onRejected() {} };
  const recorder = new Recorder(createClient({ baseUrl: service.url }), { ...quiet, ...options });
  for (let i = 0; i < events; i++) recorder.record(call());
  return recorder;
}

test("repeats a batch with the same keys until it is answered", async () => {
  service.script = [CUT, 503, 429, TAKE];
  await recorded(10).close(HANGS);
  assert.deepEqual(counts(), Array(10).fill(4));
});

test("sends every event that concurrent functions record", async () => {
  const recorder = recorded(0, { every: 1, batch: 100 });
  const side = async () => {
    for (let i = 0; i < 500; i++) {
      recorder.record(call());
      if (i % 50 === 0) await new Promise(setImmediate);
    }
  };
  await Promise.all(Array.from({ length: 8 }, side));
  await recorder.close(HANGS);
  assert.deepEqual(counts(), Array(4_000).fill(1));
});

test("sends a batch that is not full when the interval ends", async () => {
  const recorder = recorded(2, { every: 1 });
  const deadline = Date.now() + HANGS;
  while (service.keys.size < 2 && Date.now() < deadline) await new Promise(setImmediate);
  assert.deepEqual(counts(), [1, 1]);
  await recorder.close(HANGS);
});

test("halves a batch that is too large", async () => {
  service.most = 3;
  await recorded(10).close(HANGS);
  assert.deepEqual(counts(), Array(10).fill(1));
});

test("repeats a batch that is refused with 401, 403 or 404", async () => {
  service.script = [401, 403, 404, TAKE];
  const rejected: Event[] = [];
  const failures: string[] = [];
  await recorded(10, { onRejected: (event) => rejected.push(event), onRetry: (error) => failures.push(error.message) }).close(HANGS);
  assert.deepEqual(rejected, []);
  assert.deepEqual(failures, [401, 403, 404].map((status) => `the service answered ${status}: no`));
  assert.deepEqual(counts(), Array(10).fill(4));
});

test("waits as long as Retry-After requires", async () => {
  service.script = [429];
  service.pause = "3600";
  let told = 0;
  let tell = () => {};
  const retried = new Promise<void>((resolve) => (tell = resolve));
  const recorder = recorded(1, { every: 1, onRetry: () => (told++, tell()) });
  await retried;
  await assert.rejects(recorder.flush(100), { name: "UnsentError", message: "1 events are not sent: the service answered 429: no" });
  assert.equal(told, 1);
  await assert.rejects(recorder.close(100), UnsentError);
  assert.deepEqual(counts(), [1]);
});

for (const status of [400, 413, 422]) {
  test(`drops only the event that is refused with ${status}`, async () => {
    service.refused = "bad";
    service.refusal = status;
    const rejected: string[] = [];
    const recorder = recorded(3, { onRejected: (event) => rejected.push(event.customer_id) });
    recorder.record(call("bad"));
    recorder.record(call());
    await recorder.close(HANGS);
    assert.deepEqual(rejected, ["bad"]);
    assert.deepEqual(counts(), Array(4).fill(1));
  });
}

test("drops an event that cannot be encoded", async () => {
  const rejected: string[] = [];
  const recorder = recorded(0, { onRejected: (event) => rejected.push(event.customer_id) });
  const endless: Record<string, unknown> = {};
  endless.it = endless;
  recorder.record({ ...call("bad"), properties: endless });
  recorder.record(call());
  await recorder.close(HANGS);
  assert.deepEqual(rejected, ["bad"]);
  assert.deepEqual(counts(), [1]);
});

test("calls onRejected for each event that the service rejects", async () => {
  service.rejected = [{ index: 1, code: "timestamp_too_old", message: "too old" }];
  const rejected: string[] = [];
  const recorder = recorded(1, { onRejected: (event, reason) => rejected.push(`${event.customer_id} ${reason}`) });
  recorder.record(call("late"));
  await recorder.close(HANGS);
  assert.deepEqual(rejected, ["late timestamp_too_old: too old"]);
});

test("continues if onRetry or onRejected throws", async (t) => {
  service.script = [503, TAKE];
  service.refused = "bad";
  const logged = t.mock.method(console, "error", () => {});
  const fail = () => {
    throw new Error("no");
  };
  const recorder = recorded(3, { onRetry: fail, onRejected: fail });
  recorder.record(call("bad"));
  await recorder.close(HANGS);
  assert.equal(service.keys.size, 3);
  assert.deepEqual(logged.mock.calls.map((each) => each.arguments[0]).sort(), ["onRejected failed", "onRetry failed"]);
});

test("records no event if the buffer is full or the recorder is closed", async () => {
  service.script = [503];
  const recorder = recorded(5, { buffer: 5 });
  assert.throws(() => recorder.record(call()), BufferFullError);
  await assert.rejects(recorder.close(100), /5 events are not sent/);
  assert.throws(() => recorder.record(call()), ClosedError);
});

test("sends an event as it was when it was recorded", async () => {
  const event = call();
  const recorder = recorded(0);
  recorder.record(event);
  event.customer_id = "other";
  recorder.record({ ...event, idempotency_key: "mine" });
  await recorder.close(HANGS);
  assert.deepEqual(event, { event_type: "call", customer_id: "other" });
  assert.equal(service.keys.get("mine"), 1);
});

test("keys are UUIDs that contain the time", async () => {
  const before = Date.now();
  await recorded(1).close(HANGS);
  const [key = ""] = service.keys.keys();
  assert.match(key, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const made = Number.parseInt(key.replace("-", "").slice(0, 12), 16);
  assert.ok(before <= made && made <= Date.now());
});

/** Returns the standard error output of a program that ends without closing its recorder. */
async function atExit(exitTimeout: number): Promise<string> {
  const program = `
    import { createClient, Recorder } from ${JSON.stringify(new URL("client.js", import.meta.url).href)};
    const recorder = new Recorder(createClient({ baseUrl: ${JSON.stringify(service.url)} }), { exitTimeout: ${exitTimeout} });
    for (let i = 0; i < 3; i++) recorder.record({ event_type: "call", customer_id: "acme" });`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], { timeout: HANGS });
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => (said += chunk));
  const code = await new Promise((resolve) => child.on("close", resolve));
  assert.equal(code, 0, said);
  return said;
}

test("sends unsent events when the program ends", async () => {
  assert.equal(await atExit(HANGS), "");
  assert.equal(service.keys.size, 3);
});

test("reports lost events when the program ends", async () => {
  service.script = [503];
  assert.match(await atExit(200), /events are lost: 3 events are not sent: (the service answered 503: no|no time was left)/);
});
