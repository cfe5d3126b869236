import { afterEach, expect, test, vi } from "vitest";
import { answer, api, brokenRule, Failure } from "./client";
import { errorText } from "./words";

afterEach(() => vi.unstubAllGlobals());

const set = (base_price: string) => answer(api.PUT("/v1/meters/{slug}/pricing", { params: { path: { slug: "calls" } }, body: { base_price } }));
const failed = (attempt: Promise<unknown>) =>
  attempt.then(
    () => expect.unreachable(),
    (error: Error) => error,
  );

test("an error of the dashboard itself is not reported as a network error", async () => {
  const fetch = vi.fn(async () => new Response("{}"));
  vi.stubGlobal("fetch", fetch);
  const error = await failed(set("1,000.50"));
  expect(errorText(error)).toBe("The dashboard has an error on this screen.");
  expect(fetch).not.toHaveBeenCalled();
});

test("a request without an answer is reported as an unreachable service", async () => {
  vi.stubGlobal("fetch", async () => {
    throw new TypeError("Failed to fetch");
  });
  expect(errorText(await failed(set("1")))).toContain("could not be reached");
});

test("a form field shows the rule that any part of the field broke, in plain words", async () => {
  const errors = [
    { location: "body.slug", message: "expected string to match pattern ^[a-z0-9][a-z0-9_-]*$" },
    { location: "body.group_by[1]", message: "expected length <= 255" },
    { location: "body", message: "expected required property event_type to be present" },
    { location: "body.usage_scale", message: 'expected value to be one of "0, 1"' },
    { location: "body.name", message: "must be short" },
  ];
  vi.stubGlobal("fetch", async () => new Response(JSON.stringify({ title: "Invalid", detail: "", errors }), { status: 422, headers: { "Content-Type": "application/json" } }));
  const error = await failed(set("1"));
  expect(error).toBeInstanceOf(Failure);
  expect(["slug", "group_by", "event_type", "usage_scale", "name", "aggregation"].map((field) => brokenRule(error, field))).toEqual([
    "may contain only lower-case letters, digits, - and _, and must begin with a letter or a digit",
    "may have at most 255 characters",
    "is missing",
    "must be one of 0, 1",
    "must be short",
    undefined,
  ]);
});
