import { screen, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { answers, customers, list, open, session } from "../../testing";

const period = { id: null, start: "2026-10-31T23:00:00Z", end: "2026-11-30T23:00:00Z", due_at: "2026-12-03T23:00:00Z", closed_at: null, state: "open" };
const item = (slug: string, amount: string, more: object = {}) => ({ meter_id: slug, meter_slug: slug, usage: "1250", unit_price: "0.02", amount, currency: "USD", ...more });
const backfilling = { reason: "backfilling", message: "the meter's earlier events are still being counted", next_step: "Wait: the meter is billed after the backfill." };
const noTarget = { reason: "no_target", message: "Stripe has no price for it", next_step: "Sync the customer again." };

test("a meter that is not reported shows the reason and the next step, and the total excludes it", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["billing:read", "customers:read"] }];
  answers["GET /v1/customers/by-id"] = () => [200, customers.data[0]!];
  answers["GET /v1/billing/periods"] = () => [200, list(period)];
  answers["GET /v1/billing/preview"] = () => [200, [item("tokens", "5"), item("calls", "0", { excluded: backfilling }), item("storage", "40", { excluded: noTarget })]];
  open("/customers/cus_1/bill");
  const row = async (text: string) => within((await screen.findByText(text)).closest("tr") as HTMLElement);
  const counting = await row("Not reported: the meter's earlier events are still being counted");
  counting.getByText("being counted");
  counting.getByText("Wait: the meter is billed after the backfill.");
  const unmapped = await row("Not reported: Stripe has no price for it");
  unmapped.getByText("1,250");
  unmapped.getByText("Sync the customer again.");
  const total = (await screen.findByText(/^Total so far/)).closest("tr");
  expect(total?.textContent).toBe("Total so far, without unreported usage5.00 USD");
});
