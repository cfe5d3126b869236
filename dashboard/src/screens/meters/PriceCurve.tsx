import { NativeSelect } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo, useState } from "react";
import type { Schema } from "../../api/client";
import { useUnit } from "../../api/meters";
import { chargesAt, type Priced, type Terms } from "../../api/prices";
import { useSession } from "../../api/session";
import type { Place } from "../../charts/Curve";
import { LoadingText } from "../../states/Loading";
import { compare, grouped, minorDigits } from "../../values/decimal";
import { ratesOf } from "./dimensions";
import { lastMonth, mostCustomers, type CustomerUsage } from "./lastMonth";
import { rateOf } from "./rates";
import { boundsOf, inOrder, largestOf, samples } from "./samples";
import { termsOf, typedOf, type TypedTerms } from "./terms";

const Curve = lazy(() => import("../../charts/Curve").then(({ Curve }) => ({ default: Curve })));

interface Props {
  of: Priced;
  typed: TypedTerms;
  terms: Terms;
  /** The price that is charged now. */
  current: Schema<"Price"> | undefined;
}

/** Shows the charge by usage at the typed terms and at the current price. */
export function PriceCurve({ of, typed, terms, current }: Props) {
  if (typed.by.length > 0) return <RateCurve of={of} typed={typed} current={current} />;
  const now = current && !current.dimensions && current.currency === terms.currency ? termsOf(typedOf(current, current.currency)) : undefined;
  return <WholeCurve of={of} terms={terms} now={now} />;
}

interface DrawnProps {
  of: Priced;
  terms: Terms;
  /** The current terms, if they are comparable. */
  now: Terms | undefined;
}

/** Shows the charge of all usage, with last month's customers as points. */
function WholeCurve({ of, terms, now }: DrawnProps) {
  const { permissions, tenant } = useSession();
  const isReadable = permissions.includes("usage:read");
  const { data: month, isLoading } = useQuery({ ...lastMonth(of, tenant.timezone), enabled: isReadable });
  if (isLoading) return <LoadingText />;
  const { customers = [], more = false } = month ?? {};
  return (
    <section aria-labelledby="curve">
      <Title terms={terms} now={now} />
      <DrawnCurves of={of} terms={terms} now={now} customers={customers} />
      <p className="muted small">
        {isReadable && (customers.length === 0 ? "No customer has usage last month. " : "The points are the customers of last month. ")}
        {more && `Only those of the ${mostCustomers} customers with the highest usage are shown.`}
      </p>
    </section>
  );
}

const noCustomers: CustomerUsage[] = [];

/** Shows the charge of the usage that one price by dimension matches. The user selects the price. */
function RateCurve({ of, typed, current }: Omit<Props, "terms">) {
  const [chosen, choose] = useState("");
  const rates = ratesOf(typed).filter(({ rate }) => rate !== undefined);
  const shown = rates.find(({ key }) => key === chosen) ?? rates[0]!;
  const terms = useMemo(() => ({ currency: typed.currency, ...rateOf(shown.rate!) }), [typed.currency, shown.rate]);
  const now = useMemo(() => {
    const former = current?.dimensions && current.currency === typed.currency ? ratesOf(typedOf(current, current.currency)) : [];
    const rate = former.find(({ name }) => name === shown.name)?.rate;
    return rate && { currency: typed.currency, ...rateOf(rate) };
  }, [current, typed.currency, shown.name]);
  return (
    <section aria-labelledby="curve">
      <Title terms={terms} now={now} />
      <NativeSelect
        aria-label="Curve of"
        data-scratch
        data={rates.map(({ key, name }) => ({ value: key, label: name }))}
        value={shown.key}
        onChange={(event) => choose(event.currentTarget.value)}
      />
      <DrawnCurves of={of} terms={terms} now={now} customers={noCustomers} />
      <p className="muted small">This price alone, without the base price, the minimum charge and the maximum charge.</p>
    </section>
  );
}

/** Shows the title of the curve. The curve depends on usage alone, so the curve excludes fees for events. */
function Title({ terms, now }: Omit<DrawnProps, "of">) {
  const hasFee = terms.fixed_fee !== undefined || now?.fixed_fee !== undefined;
  return <h2 id="curve">{hasFee ? "Charge by usage, without fixed fees" : "Charge by usage"}</h2>;
}

/** Draws the charge at each quantity, at the typed price and at the current one. */
function DrawnCurves({ of, terms, now, customers }: DrawnProps & { customers: CustomerUsage[] }) {
  const unit = useUnit(of.meter);
  const quantities = useMemo(() => {
    const used = customers.map(({ quantity }) => quantity);
    return inOrder([...samples(largestOf(terms, used), boundsOf(terms)), ...used]);
  }, [terms, customers]);
  const all = useMemo(() => [terms, ...(now ? [now] : [])], [terms, now]);
  const { data, error } = useQuery({ ...chargesAt(all, quantities), placeholderData: keepPreviousData });
  const places = useMemo(() => data && placesOf(data.quantities, data.charges, customers), [data, customers]);
  const names = useMemo(() => (data?.charges.length === 2 ? ["New price", "Price now"] : ["New price"]), [data]);
  // WorkedCharge shows the reason.
  if (error) return <p className="muted">There is no curve, because its charges could not be calculated.</p>;
  if (!places || unit === undefined) return <LoadingText />;
  const money = (amount = "0") => `${grouped(amount, minorDigits(terms.currency ?? "USD"))} ${terms.currency}`;
  const read = ({ x, values }: Place) => {
    const named = customers.filter(({ quantity }) => compare(quantity, x) === 0).map(({ customer }) => customer);
    const name = named.length > 1 ? `${named[0]} and ${named.length - 1} more: ` : named.map((customer) => `${customer}: `).join("");
    return `${name}${grouped(x)} ${unit || "units"}, ${money(values[0])}${values.length > 1 ? `, now ${money(values[1])}` : ""}`;
  };
  return (
    <Suspense fallback={<LoadingText />}>
      <Curve label="Charge by usage" places={places} names={names} points="Customers last month" read={read} />
    </Suspense>
  );
}

/** Returns a place for each quantity. The quantities that customers used last month are marked. */
function placesOf(quantities: string[], charges: string[][], customers: CustomerUsage[]): Place[] {
  return quantities.map((x, index) => ({
    x,
    values: charges.map((line) => line[index]!),
    marked: customers.some(({ quantity }) => compare(quantity, x) === 0),
  }));
}
