import { screen, waitFor, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { answers, asked, open, press, problem, session, type } from "../../testing";

const former = { version: 1, base_price: 25, included_units: 1000, overage_rate: 0.02, model: "overage", description: "", currency: "CHF", effective_from: null, created_at: "2026-11-01T00:00:00Z" };
const meter = { id: "mtr_1", slug: "calls", name: "", event_type: "call", aggregation: "sum", group_by: [], value_property: "", filters: [], unit: "", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };
const largest = [
  { external_id: "contoso", before: 25, after: 36 },
  { external_id: "acme", before: 5, after: 4 },
];
const preview = { effective_from: "2026-10-31T23:00:00Z", changes: [{ currency: "CHF", before: 30, after: 40, customers: 3, largest }], if_in_force: [], provider_differences: [] };

const step = (name: string, amount: number, unit: string) => ({ name, amount, unit, description: `The ${name}.` });

/** Answers a calculation: every quantity costs 7.50 CHF. */
function calculated(body: string): [number, object] {
  const { usage } = JSON.parse(body);
  const charges = usage.map(({ quantity }: { quantity: number }) => ({ quantity, event_count: 0, charge: 7.5, steps: [step("unit_price", 0.003, "CHF"), step("charge", 7.5, "CHF")] }));
  return [200, { currency: "CHF", charges }];
}

function priced(price: object = former) {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["meters:read", "pricing:read", "pricing:write"] }];
  answers["GET /v1/meters/calls"] = () => [200, meter];
  answers["GET /v1/meters/calls/pricing"] = () => [200, { meter_id: "mtr_1", meter_slug: "calls", current: price, versions: [price] }];
  answers["POST /v1/pricing/calculate"] ??= calculated;
  answers["POST /v1/meters/calls/pricing/preview"] = () => [200, preview];
  open("/meters/calls/prices");
  return screen.findByRole("heading", { name: "Set another price" });
}

const sent = (name: string) => asked.filter((request) => request.name === name).map(({ body }) => body);

test("a preview shows the effect of the typed price without setting it, and disappears on an edit", async () => {
  await priced();
  type("Overage rate", "0.1234567890123456789");
  await press("Preview the running bills");
  expect((await screen.findByText("The price changes these running bills as of now:")).parentElement?.textContent).toContain("30.00 CHF → 40.00 CHF, 3 customers");
  const rows = within(screen.getByRole("table", { name: "The customers with the largest differences in CHF" })).getAllByRole("row");
  expect(rows.map(({ textContent }) => textContent)).toEqual(["CustomerNowThenDifference", "contoso25.00 CHF36.00 CHF11.00 CHF", "acme5.00 CHF4.00 CHF−1.00 CHF"]);
  screen.getByText("Only the customers with the largest differences are listed.");
  expect(sent("POST /v1/meters/calls/pricing/preview")).toEqual(['{"currency":"CHF","base_price":25,"model":"overage","included_units":1000,"overage_rate":0.1234567890123456789}']);
  expect(sent("PUT /v1/meters/calls/pricing")).toEqual([]);
  type("Overage rate", "0.03");
  expect(screen.queryByText("The price changes these running bills as of now:")).toBeNull();
});

const differing = { their_price: "0.03 CHF for each unit", first_difference: "tier 1: unit_price is 0.04 in Odometer and 0.03 at the provider", customers: 3 };
const differs = "0.03 CHF for each unit at the provider, for 3 customers (tier 1: unit_price is 0.04 in Odometer and 0.03 at the provider)";

test("the preview and the saved price show the provider's price that is billed instead", async () => {
  await priced();
  answers["POST /v1/meters/calls/pricing/preview"] = () => [200, { ...preview, changes: [], provider_differences: [differing] }];
  answers["PUT /v1/meters/calls/pricing"] = () => [200, { meter_id: "mtr_1", meter_slug: "calls", versions: [former], provider_differences: [differing] }];
  await press("Preview the running bills");
  expect((await screen.findByText(differs)).closest("[role=status]")?.textContent).toContain("The provider bills its own prices instead of this price:");
  type("Overage rate", "0.04");
  expect(screen.queryByText(differs), "the preview is of the previous terms").toBeNull();
  await press("Set the price");
  await screen.findByText(differs);
});

test("a currency change of later periods has its own text in the confirmation", async () => {
  await priced();
  answers["PUT /v1/meters/calls/pricing"] = () => {
    const [status, refused] = problem(409, "The price changes the currency");
    return [status, { ...refused, code: "confirmation_required", confirmation: { ...confirmation, periods: [], changes: [], uncounted: [] } }];
  };
  type("Currency", "USD");
  await press("Set the price");
  await screen.findByText("From a later billing period on, the change charges 19 customers in a currency that differs from their bills.");
  expect(screen.queryByText(/running billing periods:/)).toBeNull();
});

const confirmation = {
  token: "token-1",
  customers: 19,
  periods: [{ start: "2026-10-31T23:00:00Z", end: "2026-11-30T23:00:00Z", customers: 19 }],
  changes: [{ currency: "CHF", before: 0, after: 931, customers: 19 }],
  uncounted: ["mtr_7"],
  as_of: "2026-11-12T09:30:00Z",
};

/** Makes the API require the last of these tokens to set a price. Each refusal returns the next token. */
function confirmedWith(...tokens: string[]) {
  const rest = [...tokens];
  answers["PUT /v1/meters/calls/pricing"] = (body) => {
    if (JSON.parse(body).confirm === tokens.at(-1)) return [200, { meter_id: "mtr_1", meter_slug: "calls", versions: [former] }];
    const [status, refused] = problem(409, "The price changes bills");
    return [status, { ...refused, code: "confirmation_required", confirmation: { ...confirmation, token: rest.shift() } }];
  };
}

const dialog = "Change the running bills";

test("a price for running billing periods is set after the user confirms the changes", async () => {
  await priced();
  confirmedWith("token-1", "token-2");
  type("Applies", "day");
  type("Day", "2026-11-01");
  await press("Set the price");
  await screen.findByText(dialog);
  await screen.findByText("The change affects the charges of 19 customers in running billing periods:");
  expect((await screen.findByText(/1 – 30 Nov 2026/)).textContent).toBe("1 – 30 Nov 2026, 19 customers");
  expect((await screen.findByText(/Charges as of/)).parentElement?.textContent).toContain("0.00 CHF → 931.00 CHF, 19 customers");
  await screen.findByText("The charges of these meters are unknown until earlier events are counted, and are not included: mtr_7.");
  expect(screen.queryByRole("alert")).toBeNull();

  await press("Back");
  await waitFor(() => expect(screen.queryByText(dialog)).toBeNull());
  expect((await screen.findByLabelText<HTMLInputElement>("Day")).value).toBe("2026-11-01");

  await press("Set the price"); // the form asks for confirmation again
  await screen.findByText(dialog);
  await press("Change the bills");
  await waitFor(() => expect(sent("PUT /v1/meters/calls/pricing").length).toBe(3));
  await waitFor(() => expect(screen.queryByText(dialog)).toBeNull());
  const bodies = sent("PUT /v1/meters/calls/pricing").map((body) => JSON.parse(body));
  expect(bodies.map((body) => [body.effective_from, body.confirm])).toEqual([
    ["2026-10-31T23:00:00.000Z", undefined],
    ["2026-10-31T23:00:00.000Z", undefined],
    ["2026-10-31T23:00:00.000Z", "token-2"],
  ]);
});

for (const written of ["1,000.50", "12,50"]) {
  test(`a price typed as ${written} is marked and not sent`, async () => {
    await priced();
    type("Base price", written);
    await press("Set the price");
    await screen.findByText("Must be a number such as 1000.50, without thousands separators");
    const field = await screen.findByLabelText<HTMLInputElement>("Base price");
    expect(field.getAttribute("aria-invalid")).toBe("true");
    expect(document.activeElement).toBe(field);
    await press("Preview the running bills");
    expect([...sent("PUT /v1/meters/calls/pricing"), ...sent("POST /v1/meters/calls/pricing/preview")]).toEqual([]);
    expect(screen.queryByText(/could not be reached/)).toBeNull();
    type("Base price", "1000.50");
    expect(screen.queryByText(/without thousands separators/)).toBeNull();
    answers["PUT /v1/meters/calls/pricing"] = () => [200, { meter_id: "mtr_1", meter_slug: "calls", versions: [former] }];
    await press("Set the price");
    await waitFor(() => expect(sent("PUT /v1/meters/calls/pricing")).toHaveLength(1));
    expect(sent("PUT /v1/meters/calls/pricing")[0]).toContain('"base_price":1000.50,');
  });
}

test("an outdated confirmation is requested again", async () => {
  await priced();
  confirmedWith("token-1", "token-2");
  await press("Set the price");
  await screen.findByText(dialog);
  await press("Change the bills");
  await waitFor(() => expect(sent("PUT /v1/meters/calls/pricing").length).toBe(2));
  await screen.findByText(dialog);
  await press("Change the bills");
  await waitFor(() => expect(sent("PUT /v1/meters/calls/pricing").length).toBe(3));
  expect(sent("PUT /v1/meters/calls/pricing").map((body) => JSON.parse(body).confirm)).toEqual([undefined, "token-1", "token-2"]);
});

const tiers = [
  { up_to: 1000, unit_price: 0.02, flat_fee: 5 },
  { up_to: null, unit_price: 0.01, flat_fee: 0 },
];
const tiered = { ...former, base_price: 0, included_units: 0, overage_rate: 0, model: "graduated", tiers, description: "tier by tier: up to 1000 units: 5 CHF and 0.02 CHF for each unit; beyond: 0.01 CHF for each unit" };

const value = (label: string) => screen.getByLabelText<HTMLInputElement>(label).value;

test("the form of the next price begins with the tiers of the current price", async () => {
  await priced(tiered);
  expect(screen.getAllByText(tiered.description)).toHaveLength(2);
  expect([value("Model"), value("Tier 1: up to"), value("Tier 1: unit price"), value("Tier 1: flat fee"), value("Tier 2: unit price"), value("Tier 2: flat fee")]).toEqual(["graduated", "1000", "0.02", "5", "0.01", ""]);
  expect(screen.queryByLabelText("Overage rate")).toBeNull();
  expect(screen.queryByLabelText("Tier 2: up to")).toBeNull();

  answers["PUT /v1/meters/calls/pricing"] = () => [200, { meter_id: "mtr_1", meter_slug: "calls", versions: [tiered] }];
  await press("Add a tier");
  expect(value("Tier 3: unit price")).toBe("0.01");
  await press("Set the price");
  expect(sent("PUT /v1/meters/calls/pricing"), "a tier without a bound is not sent").toEqual([]);
  type("Tier 2: up to", "1000");
  type("Tier 2: unit price", "0.015");
  await press("Set the price");
  await screen.findByText("Must be more than 1000");
  type("Tier 2: up to", "5000.5");
  await press("Set the price");
  await waitFor(() => expect(sent("PUT /v1/meters/calls/pricing")).toHaveLength(1));
  expect(sent("PUT /v1/meters/calls/pricing")[0]).toContain(
    '"tiers":[{"up_to":1000,"unit_price":0.02,"flat_fee":5},{"up_to":5000.5,"unit_price":0.015},{"up_to":null,"unit_price":0.01}]',
  );
});

test("a removed tier is not sent, and a refused tier is marked", async () => {
  await priced(tiered);
  answers["PUT /v1/meters/calls/pricing"] = () => [422, { ...problem(422, "refused")[1], errors: [{ location: "body.tiers[0].unit_price", message: "must have at most 12 decimals" }] }];
  await press("Remove tier 1");
  expect(screen.queryByLabelText("Tier 2: unit price")).toBeNull();
  await press("Set the price");
  await waitFor(() => expect(screen.getByLabelText("Tier 1: unit price").getAttribute("aria-invalid")).toBe("true"));
  expect(JSON.parse(sent("PUT /v1/meters/calls/pricing")[0]!).tiers).toEqual([{ up_to: null, unit_price: 0.01 }]);
});

test("only the fields of the chosen model are shown and sent", async () => {
  await priced();
  const fields = { per_unit: ["Unit price", "Units for this price"], package: ["Package size", "Package price"], percentage: ["Percent", "Fixed fee"], overage: ["Overage rate"] };
  for (const [model, own] of Object.entries(fields)) {
    type("Model", model);
    for (const label of Object.values(fields).flat()) expect(screen.queryByLabelText(label) !== null, `${label} of ${model}`).toBe(own.includes(label));
  }
  type("Model", "package");
  type("Package size", "500");
  type("Package price", "3");
  await press("Preview the running bills");
  await waitFor(() => expect(sent("POST /v1/meters/calls/pricing/preview")).toEqual(['{"currency":"CHF","base_price":25,"model":"package","included_units":1000,"package_size":500,"package_price":3}']));
});

test("the API calculates the charge for the tried usage while the user types the price", async () => {
  await priced();
  type("Model", "per_unit");
  await screen.findByText(/appears here once/);
  type("Unit price", "0.0000000000001");
  type("Usage to try", "2500.5");
  const worked = () => sent("POST /v1/pricing/calculate").findLast((body) => body.endsWith('"steps":true}'));
  await waitFor(() => expect(worked()).toContain('"unit_price":0.0000000000001,'));
  await waitFor(() => expect(worked()).toContain('"usage":[{"quantity":2500.5}],"steps":true'));
  await waitFor(() => expect(screen.getAllByRole("status").map(({ textContent }) => textContent)).toContain("2,500.5 units cost 7.50 CHF"));
  await screen.findByText("The unit_price.");
});

test("terms that the API refuses have no curve, and the reason is shown", async () => {
  answers["POST /v1/pricing/calculate"] = () => [422, { ...problem(422, "refused")[1], errors: [{ location: "body.currency", message: "must be an active ISO 4217 currency code" }] }];
  await priced();
  type("Currency", "XAU");
  await screen.findByText("There is no curve, because its charges could not be calculated.");
  await screen.findByText("Currency must be an active ISO 4217 currency code");
});
