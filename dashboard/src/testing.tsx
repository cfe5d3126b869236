import { act, cleanup, configure, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { stringify } from "lossless-json";
import { afterEach, beforeEach, expect, vi } from "vitest";
import { forgetSession } from "./api/session";
import type { Place } from "./charts/Curve";
import type { Points } from "./charts/points";
import { App } from "./App";
import { queries, router } from "./router";

// Tools for the tests of screens: an API with the answers of the test, and functions that press and type.
// This file runs before each test file.

// The test environment has no canvas, so these components replace the charts and print their values. Modules are
// replaced only here, because all test files share them.
vi.mock("./charts/Chart", () => ({
  Chart: ({ label, points: { series, thresholds }, unit }: { label: string; points: Points; unit: string }) => (
    <>
      <p>{`chart of ${series.map(({ name }) => name).join(", ")} in ${unit}`}</p>
      <p>{`${label}: ${series[0]?.values.slice(-3).join(" ")} of ${thresholds?.join(" ")}`}</p>
    </>
  ),
}));
vi.mock("./charts/Curve", () => ({
  Curve: ({ places, names, read }: { places: Place[]; names: string[]; read: (place: Place) => string }) => (
    <>
      <p>{`lines: ${names.join(", ")} up to ${places.at(-1)!.x}`}</p>
      {places.filter(({ marked }) => marked).map((place) => <p key={place.x}>{read(place)}</p>)}
    </>
  ),
}));
vi.mock("./values/csv", async (original) => ({ ...(await original<object>()), save: vi.fn() }));

configure({ asyncUtilTimeout: 300_000 }); // ends a test that waits in vain; a busy machine may take minutes

/** Maximum delay of an answer, in milliseconds. Delays are random, and no test may depend on the order of answers. */
const latest = Number(process.env.ANSWER_DELAY ?? 0);

/** Answers of the API, by method and path. asked lists the requests that the API received. */
export let answers: Record<string, (body: string) => [status: number, body: object | string, headers?: Record<string, string>]>;
export let asked: { name: string; url: string; body: string; csrf: string | null }[];

export const tenant = { id: "ten_1", name: "Acme", timezone: "Europe/Zurich", currency: "CHF" };
export const member = { id: "member_1", tenant_id: "ten_1", email: "ada@example.com", name: "Ada", role: "viewer", has_password: true, created_at: "2026-11-01T00:00:00Z" };
export const session = { tenant, member, csrf_token: "csrf-of-ada", permissions: ["customers:read"] };
const customer = { id: "cus_1", tenant_id: "ten_1", external_id: "contoso", name: "Contoso", billing_provider_id: null, metadata: {}, created_at: "2026-11-01T00:00:00Z" };
export const customers = { data: [customer], has_more: false, next_page_token: null };
/** Returns the answer of a refused request. */
export const problem = (status: number, detail: string) => [status, { title: "Problem", detail, status, code: "x", request_id: "REQUEST7", errors: [] }] as [number, object];

beforeEach(() => {
  asked = [];
  answers = {
    "GET /v1/auth/session": () => [200, session],
    "GET /v1/customers": () => [200, customers],
  };
  vi.stubGlobal("fetch", async (request: Request) => {
    const name = `${request.method} ${new URL(request.url).pathname}`;
    const body = await request.text();
    asked.push({ name, url: request.url, body, csrf: request.headers.get("X-CSRF-Token") });
    const [status, answer, headers] = answers[name]?.(body) ?? problem(404, `the test has no ${name}`);
    await new Promise((arrived) => setTimeout(arrived, Math.random() * latest));
    if (typeof answer === "string") return new Response(answer, { status, ...(headers && { headers }) });
    return new Response(stringify(answer) ?? null, { status, headers: { "Content-Type": "application/json" } });
  });
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
  vi.stubGlobal("scrollTo", () => {});
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe() {}
      unobserve() {}
      disconnect() {}
    },
  );
  Object.defineProperty(document, "fonts", { value: new EventTarget(), configurable: true }); // components that grow with their text wait for fonts
});

let opened = false;

afterEach(async () => {
  if (opened) {
    await act(async () => {
      router.history.replace("/none"); // the next test begins here, so it renders no page of this test
      await router.load();
    });
  }
  opened = false;
  cleanup();
  forgetSession(queries);
  vi.unstubAllGlobals();
});

/** Returns a list of the API with one page. */
export const list = (...data: object[]) => ({ data, has_more: false, next_page_token: null });

/** Returns the body of each request with the method and path of name. */
export const sent = (name: string) => asked.filter((one) => one.name === name).map(({ body }) => (body === "" ? undefined : JSON.parse(body)));

/** Shows the dashboard at an address. */
export function open(address: string) {
  opened = true;
  render(<App />);
  router.history.push(address);
}

/** Types a text in the field with a label. */
export const type = (label: string, text: string) => fireEvent.change(screen.getByLabelText(label), { target: { value: text } });

/** Waits until a button exists and is not loading, and presses it. */
export async function press(name: string | RegExp) {
  const button = await screen.findByRole("button", { name });
  await waitFor(() => expect(button.getAttribute("data-loading")).toBeNull());
  fireEvent.click(button);
}
