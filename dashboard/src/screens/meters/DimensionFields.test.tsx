import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { answers, asked, open, press, problem, session } from "../../testing";

const large = { match: { model: ["large", "7", 7, null] }, included_units: 0, model: "per_unit", unit_price: 3, per_units: 1000000 };
const small = { match: { model: ["small"], region: ["eu"] }, included_units: 100, model: "overage", overage_rate: 0.2 };
const price = {
  version: 1,
  base_price: 25,
  included_units: 0,
  overage_rate: 0,
  description: "by dimension",
  currency: "CHF",
  effective_from: null,
  created_at: "2026-11-01T00:00:00Z",
  dimensions: { by: ["model", "region"], prices: [large, small] },
};
const meter = { id: "mtr_1", slug: "tokens", name: "", event_type: "llm", aggregation: "sum", group_by: ["model", "region", "tier"], value_property: "", filters: [], unit: "", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };
const whole = { ...price, dimensions: undefined, model: "overage", overage_rate: 0.5 };

function priced(shown: object = price, measured: object = meter) {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["meters:read", "pricing:read", "pricing:write"] }];
  answers["GET /v1/meters/tokens"] = () => [200, measured];
  answers["GET /v1/meters/tokens/pricing"] = () => [200, { meter_id: "mtr_1", meter_slug: "tokens", current: shown, versions: [shown] }];
  answers["PUT /v1/meters/tokens/pricing"] = () => [200, { meter_id: "mtr_1", meter_slug: "tokens", versions: [shown] }];
  answers["POST /v1/pricing/calculate"] = (body) => {
    const { usage } = JSON.parse(body);
    return [200, { currency: "CHF", charges: usage.map(() => ({ quantity: 2500, event_count: 0, charge: 7.5, steps: [] })) }];
  };
  open("/meters/tokens/prices");
  return screen.findByRole("heading", { name: "Set another price" });
}

const sent = (name: string) => asked.filter((request) => request.name === name).map(({ body }) => body);
const group = (name: string) => within(screen.getByRole("group", { name }));
const field = (name: string, label: string | RegExp) => group(name).getByLabelText<HTMLInputElement>(label);
const type = (name: string, label: string | RegExp, value: string) => fireEvent.change(field(name, label), { target: { value } });
const prices = () => screen.getAllByRole("group", { name: /^Price \d+$/ }).map((one) => within(one).getByLabelText<HTMLTextAreaElement>(/^Values of model/).value);

test("the form of the next price begins with the current prices by dimension, with the types of their values", async () => {
  await priced();
  expect(prices()).toEqual(['large\n"7"\n7\nnull', "small"]);
  expect([field("Price 2", /^Values of region/).value, field("Price 2", "Model").value, field("Price 2", "Overage rate").value]).toEqual(["eu", "overage", "0.2"]);
  group("Price 1").getByText('Understood as the text "large", the text "7", the number 7, null');
  await press("Set the price");
  await waitFor(() => expect(sent("PUT /v1/meters/tokens/pricing")).toHaveLength(1));
  expect(JSON.parse(sent("PUT /v1/meters/tokens/pricing")[0]!)).toEqual({ currency: "CHF", base_price: 25, dimensions: price.dimensions });
});

test("a price without dimensions becomes the first price when the user chooses a property", async () => {
  await priced(whole);
  await screen.findByLabelText("tier");
  expect(screen.queryByRole("group", { name: "Price 1" })).toBeNull();
  fireEvent.click(screen.getByLabelText("model"));
  expect([field("Price 1", "Overage rate").value, field("Price 1", /^Values of model/).value]).toEqual(["0.5", ""]);
  expect(group("Price 1").queryByLabelText(/^Values of region/)).toBeNull();
  await press("Set the price");
  await screen.findByText("Must have a value");
  expect([document.activeElement, sent("PUT /v1/meters/tokens/pricing")]).toEqual([field("Price 1", /^Values of model/), []]);
  type("Price 1", /^Values of model/, "large");
  type("All other usage", "All other usage", "charged");
  type("All other usage", "Model", "per_unit");
  type("All other usage", "Unit price", "1");
  await press("Set the price");
  await waitFor(() => expect(sent("PUT /v1/meters/tokens/pricing")).toHaveLength(1));
  expect(JSON.parse(sent("PUT /v1/meters/tokens/pricing")[0]!).dimensions).toEqual({
    by: ["model"],
    prices: [{ match: { model: ["large"] }, model: "overage", included_units: 0, overage_rate: 0.5 }],
    default: { model: "per_unit", unit_price: 1 },
  });
  fireEvent.click(screen.getByLabelText("model"));
  await screen.findByLabelText("Overage rate");
});

test("adding, moving and removing a price puts the focus at the right control", async () => {
  await priced();
  await press("Add a price");
  expect(document.activeElement).toBe(field("Price 3", /^Values of model/));
  type("Price 3", /^Values of model/, "tiny");
  const focused = () => document.activeElement?.getAttribute("aria-label");
  await press("Move price 3 up");
  expect([prices()[1], focused()]).toEqual(["tiny", "Move price 2 up"]);
  await press("Move price 2 up");
  expect([prices()[0], focused()]).toEqual(["tiny", "Move price 1 down"]);
  await press("Remove price 2");
  expect(prices()).toEqual(["tiny", "small"]);
  expect(document.activeElement?.textContent).toBe("Add a price");
});

test("a refused field of a price by dimension is marked in the form", async () => {
  await priced();
  const refusals = {
    "body.dimensions.prices[1].overage_rate": () => field("Price 2", "Overage rate"),
    "body.dimensions.prices[1].match": () => field("Price 2", /^Values of model/),
    "body.dimensions.prices[0].match.region[0]": () => field("Price 1", /^Values of region/),
  };
  for (const [location, place] of Object.entries(refusals)) {
    answers["PUT /v1/meters/tokens/pricing"] = () => [422, { ...problem(422, "refused")[1], errors: [{ location, message: "must match values that prices[0] does not match" }] }];
    await press("Set the price");
    await waitFor(() => expect(place().getAttribute("aria-invalid"), location).toBe("true"));
    expect(document.querySelectorAll("form [aria-invalid=true]"), location).toHaveLength(1);
  }
  screen.getByText("Region of price 1 must match values that price 1 does not match");
});

test("the tried charge covers the usage of all prices, and the curve shows one price", async () => {
  await priced();
  await screen.findByText(/^lines: New price, Price now up to/);
  const tried = () => JSON.parse(sent("POST /v1/pricing/calculate").findLast((body) => body.endsWith('"steps":true}'))!);
  fireEvent.change(screen.getByLabelText("Usage to try, model small, region eu"), { target: { value: "9" } });
  await waitFor(() =>
    expect(tried().usage).toEqual([
      {
        by_dimension: [
          { quantity: 1250, dimension: { model: "large", region: "any other" } },
          { quantity: 9, dimension: { model: "small", region: "eu" } },
          { quantity: 1250, dimension: { model: "any other", region: "any other" } },
        ],
      },
    ]),
  );
  expect(tried().dimensions).toEqual(price.dimensions);
  const curve = () => sent("POST /v1/pricing/calculate").findLast((body) => body.endsWith('"steps":false}'));
  expect(curve()).toMatch(/^{"currency":"CHF","model":"per_unit","unit_price":3,"per_units":1000000,"included_units":0,|^{"currency":"CHF","model":"per_unit","included_units":0,"unit_price":3,"per_units":1000000,/);
  fireEvent.change(screen.getByLabelText("Curve of"), { target: { value: screen.getByText<HTMLOptionElement>("model small, region eu").value } });
  await waitFor(() => expect(curve()).toMatch(/^{"currency":"CHF","model":"overage","included_units":100,"overage_rate":0.2,/));
  type("Price 1", /^Values of region/, "");
  type("Price 1", /^Values of model/, "large\nsmall");
  await screen.findByText("No usage to try, model small, region eu: the prices above it match all of its usage.");
});

test("a meter without group properties offers no prices by dimension", async () => {
  await priced(whole, { ...meter, group_by: [] });
  await screen.findByLabelText("Overage rate");
  expect(screen.queryByText("The price depends on")).toBeNull();
});
