import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { LosslessNumber } from "lossless-json";
import { expect, test } from "vitest";
import { router } from "../../router";
import { answers, asked, list, open, press, problem, session } from "../../testing";
import { save } from "../../values/csv";

const meter = { id: "mtr_1", slug: "tokens", name: "", event_type: "completion", aggregation: "sum", group_by: ["model", "plan"], value_property: "", filters: [], unit: "tokens", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };
const path = "GET /v1/usage/breakdown";
const period = { start: "2026-10-31T23:00:00Z", end: "2026-11-30T23:00:00Z" };

/** Opens the screen with an answer of the API. */
function usage(address: string, answer: object, permissions = ["usage:read", "meters:read", "customers:read"]) {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions }];
  answers["GET /v1/meters"] = () => [200, list(meter, { ...meter, id: "mtr_2", slug: "calls", group_by: [], unit: "" })];
  answers[path] = () => [200, { ...list(), period, total: 0, ...answer }];
  open(address);
}

const queries = () => asked.filter(({ name }) => name === path).map(({ url }) => new URL(url).searchParams);
const cells = () => screen.getAllByRole("row").slice(1).map((row) => within(row).getAllByRole("cell").map(({ textContent }) => textContent));

test("usage is broken down by customers, with the unit of the meter and late usage", async () => {
  usage("/usage", { data: [{ customer: "acme", value: 1284402.75 }, { customer: "a/b", value: 3 }], total: 1284405.75 });
  await screen.findByText("1,284,405.75");
  expect(cells()).toEqual([["acme", "1,284,402.75 tokens"], ["a/b", "3 tokens"]]);
  await screen.findByText(/It includes late usage/);
  expect((await screen.findByRole("link", { name: "a/b" })).getAttribute("href")).toBe("/customers/-/by-external-id?id=a%2Fb&meter=tokens");
  expect(Object.fromEntries(queries()[0]!)).toEqual({ meter: "tokens", by: "customer", page_size: "100" });
});

test("dimensions, windows and the order are in the address and in the query", async () => {
  usage("/usage?meter=tokens&by=plan,model,property.plan&granularity=day&order=value&range=7&page=next", {
    data: [
      { plan: "pro", group_key: { model: "7", plan: null }, window_start: "2026-11-01T23:00:00Z", value: 2 },
      { plan: "", group_key: { model: new LosslessNumber("1234567890123456789"), plan: true }, window_start: "2026-11-01T23:00:00Z", value: 1 },
      { plan: "", group_key: { $other: true }, window_start: "2026-11-02T23:00:00Z", value: 1 },
    ],
    total: 3,
    next_page_token: "after",
  });
  await screen.findByText("3 Nov 2026");
  expect(cells()).toEqual([
    ["pro", '"7"', "none", "2 Nov 2026", "2 tokens"],
    ["no plan", "1234567890123456789", "true", "2 Nov 2026", "1 tokens"],
    ["no plan", "unknown", "unknown", "3 Nov 2026", "1 tokens"],
  ]);
  const [query] = queries();
  expect([query!.getAll("by"), query!.get("granularity"), query!.get("order"), query!.get("page_token")]).toEqual([["plan", "model", "property.plan"], "day", "value", "next"]);
  expect(query!.get("start")).toMatch(/T2[23]:00:00.000Z$/); // midnight in Zurich
  expect((await screen.findByRole("link", { name: "Next page" })).getAttribute("href")).toContain("page=after");
  fireEvent.click(await screen.findByLabelText("Customer"));
  await waitFor(() => expect(router.state.location.search).toMatchObject({ by: "customer,plan,model,property.plan", granularity: "day" }));
  expect(router.state.location.search).not.toHaveProperty("page");
});

test("filters limit the usage to property values, and exclude usage with unknown values", async () => {
  usage("/usage?by=none&filter=model%3Dlarge%26user%3Dx", { data: [{ value: 5 }], total: 5, other_total: 2, warnings: ["total excludes"] });
  await screen.findByText(/with unknown property values/);
  fireEvent.change((await screen.findByLabelText("Value")), { target: { value: "7" } });
  await press("Filter");
  await waitFor(() => expect(queries().at(-1)!.getAll("filter.model")).toEqual(["large", "7"]));
  expect(router.state.location.search).toMatchObject({ by: "none", filter: "model=large&model=7" });
  await press("Remove the filter model: large");
  await waitFor(() => expect(queries().at(-1)!.getAll("filter.model")).toEqual(["7"]));
  await press("Remove the filter model: 7");
  await waitFor(() => expect(router.state.location.search).toEqual({ by: "none" }));
});

test("without dimensions, all customers are one row, and a limit determines the order", async () => {
  usage("/usage?by=none", { data: [{ value: 5 }], total: 5 });
  await screen.findByText("All customers");
  expect(queries()[0]!.has("by")).toBe(false);
  router.history.push("/usage?limit=5&order=key");
  await waitFor(() => expect(queries().at(-1)!.get("limit")).toBe("5"));
  expect(queries().at(-1)!.has("order")).toBe(false); // with a limit, the API orders rows by value
  expect(screen.queryByLabelText("Order")).toBeNull();
});

test("the row of all others has a name", async () => {
  usage("/usage?limit=5", { data: [{ customer: "acme", value: 4 }, { value: 3.6, other: true }], total: 7.6 });
  await screen.findByText("All others");
  expect(cells()).toEqual([["acme", "4 tokens"], ["All others", "3.6 tokens"]]);
});

test("the CSV file has the rows of all pages under one header", async () => {
  usage("/usage?by=customer", { data: [{ customer: "acme", value: 1 }], total: 2 });
  await screen.findByText("acme");
  answers[path] = () => {
    const query = new URL(asked.at(-1)!.url).searchParams;
    if (query.get("page_token") === "second") return [200, '"cust\nomer",value\nbeta,1\n'];
    return [200, '"cust\nomer",value\nacme,1\n', { Link: `</v1/usage/breakdown?${query}&page_token=second>; rel="next"` }];
  };
  await press("Download CSV");
  await waitFor(() => expect(save).toHaveBeenCalledWith("usage-tokens.csv", '"cust\nomer",value\nacme,1\nbeta,1\n', "text/csv;charset=utf-8"));
  expect(queries().at(-1)!.get("format")).toBe("csv");
  answers[path] = () => problem(429, "the tenant's limit is reached");
  await press("Download CSV");
  expect((await screen.findByRole("alert")).textContent).toContain("The tenant's limit is reached");
});

test("a refused query shows which field to change", async () => {
  usage("/usage?granularity=hour&range=365", {});
  const refused = (location: string, message: string) => () => [422, { ...problem(422, "")[1], errors: [{ location, message }] }] as [number, object];
  answers[path] = refused("query.granularity", "must be longer for this range: at most 10,000 windows");
  expect((await screen.findByRole("alert")).textContent).toContain("Windows must be longer for this range");
  answers[path] = refused("query.end", "must be closer to start, because the range has too much usage for one request");
  await press("Retry");
  await screen.findByText(/^Until must be closer to start/);
  answers[path] = () => [503, { ...problem(503, "")[1], code: "meter_backfilling" }];
  await press("Retry");
  await screen.findByText(/past events are still being counted/);
});

test("a customer's external ID leads to the customer's usage, and an unknown one to the search", async () => {
  usage("/customers/-/by-external-id?id=a/b&meter=tokens&range=30", {});
  answers["GET /v1/customers/by-external-id"] = () => [200, { id: "cus_1" }];
  answers["GET /v1/customers/by-id"] = () => [200, { id: "cus_1", external_id: "a/b", name: "", metadata: {} }];
  await waitFor(() => expect(router.state.location.href).toBe("/customers/cus_1/usage?meter=tokens&range=30"));
  answers["GET /v1/customers/by-external-id"] = () => problem(404, "no such customer");
  router.history.push("/customers/-/by-external-id?id=gone");
  await waitFor(() => expect(router.state.location.href).toBe("/customers?search=gone"));
});
