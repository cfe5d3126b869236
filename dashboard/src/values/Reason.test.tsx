import { render } from "@testing-library/react";
import type { ReactElement } from "react";
import { expect, test } from "vitest";
import { Reason } from "./Reason";

/** Returns the text of each paragraph of a reason. */
const paragraphs = (reason: ReactElement) => Array.from(render(reason).container.querySelectorAll("p"), ({ textContent }) => textContent);

const final = { message: "the period's invoice is final or is being finalized, and lacks some usage", next_step: "Wait: the next period bills the usage." };

test("a reason shows its message with a capital first letter, and its next step below", () => {
  expect(paragraphs(<Reason of={final} />)).toEqual(["The period's invoice is final or is being finalized, and lacks some usage", "Wait: the next period bills the usage."]);
});

test("a reason without a next step shows only its message", () => {
  expect(paragraphs(<Reason of={{ ...final, next_step: "" }} />)).toHaveLength(1);
  expect(paragraphs(<Reason of={{ message: final.message }} />)).toHaveLength(1);
});

test("a message keeps its first letter after a prefix, and if it begins with the meter's slug", () => {
  expect(paragraphs(<Reason prefix="Not reported: " of={final} />)[0]).toBe("Not reported: the period's invoice is final or is being finalized, and lacks some usage");
  const slugFirst = "calls: a report is being sent, or its outcome is unknown";
  expect(paragraphs(<Reason of={{ message: slugFirst, meter_slug: "calls" }} />)).toEqual([slugFirst]);
  expect(paragraphs(<Reason of={{ ...final, meter_slug: "calls" }} />)[0]).toBe("The period's invoice is final or is being finalized, and lacks some usage");
});

test("a reason shows the dashboard's names of API calls and fields", () => {
  const reason = { message: "the customer has no billing_provider_id", next_step: "Save a provider with PUT /v1/billing/provider." };
  expect(paragraphs(<Reason of={reason} />)).toEqual(["The customer has no id at the provider", "Save a provider with the form under Billing, Provider."]);
});
