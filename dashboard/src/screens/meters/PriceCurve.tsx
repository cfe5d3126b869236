import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo } from "react";
import { Refused } from "../../acts/Refused";
import type { Schema } from "../../api/client";
import { useUnit } from "../../api/meters";
import { chargesAt, type Priced, type Terms } from "../../api/prices";
import { useSession } from "../../api/session";
import type { Place } from "../../charts/Curve";
import { LoadingText } from "../../states/Loading";
import { compare, grouped, minorDigits } from "../../values/decimal";
import { lastMonth, mostCustomers, type CustomerUsage } from "./lastMonth";
import { boundsOf, inOrder, largestOf, samples } from "./samples";
import { termsOf, typedOf } from "./terms";

const Curve = lazy(() => import("../../charts/Curve").then(({ Curve }) => ({ default: Curve })));

interface Props {
  of: Priced;
  terms: Terms;
  /** The price that is charged now. */
  current: Schema<"Price"> | undefined;
}

/** The charge over usage at terms and now, with the customers of last month as points. */
export function PriceCurve({ of, terms, current }: Props) {
  const { permissions, tenant } = useSession();
  const isReadable = permissions.includes("usage:read");
  const { data: month, isLoading } = useQuery({ ...lastMonth(of, tenant.timezone), enabled: isReadable });
  if (isLoading) return <LoadingText />;
  const { customers = [], more = false } = month ?? {};
  return (
    <section aria-labelledby="curve">
      <h2 id="curve">Charge by usage</h2>
      <Drawn of={of} terms={terms} current={current} customers={customers} />
      <p className="muted small">
        {isReadable && (customers.length === 0 ? "No customer has usage last month. " : "The points are the customers of last month. ")}
        {more && `Only those of the ${mostCustomers} customers with the highest usage are shown. `}
        {terms.fixed_fee !== undefined && "The curve is without fixed fees."}
      </p>
    </section>
  );
}

function Drawn({ of, terms, current, customers }: Props & { customers: CustomerUsage[] }) {
  const unit = useUnit(of.meter);
  const quantities = useMemo(() => {
    const used = customers.map(({ quantity }) => quantity);
    const largest = used.toSorted(compare).at(-1) ?? largestOf(terms);
    return inOrder([...samples(largest, boundsOf(terms)), ...used]);
  }, [terms, customers]);
  const isCompared = current !== undefined && current.dimensions === undefined && current.currency === terms.currency;
  const all = useMemo(() => [terms, ...(isCompared ? [termsOf(typedOf(current, current.currency))] : [])], [terms, current, isCompared]);
  const { data, error } = useQuery({ ...chargesAt(all, quantities), placeholderData: keepPreviousData });
  const places = useMemo(() => data && placesOf(data.quantities, data.charges, customers), [data, customers]);
  const names = useMemo(() => (data?.charges.length === 2 ? ["New price", "Price now"] : ["New price"]), [data]);
  if (error) return <Refused error={error} />;
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

function placesOf(quantities: string[], charges: string[][], customers: CustomerUsage[]): Place[] {
  return quantities.map((x, index) => ({
    x,
    values: charges.map((line) => line[index]!),
    marked: customers.some(({ quantity }) => compare(quantity, x) === 0),
  }));
}
