import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useDebouncedValue } from "@mantine/hooks";
import { useState } from "react";
import { NumberField } from "../../acts/NumberField";
import { Refused } from "../../acts/Refused";
import type { Schema } from "../../api/client";
import { calculation, type Terms } from "../../api/prices";
import { LoadingText } from "../../states/Loading";
import { Amount } from "../../values/Amount";
import { isAmount, wrongAmount, wrongWhole } from "../../values/decimal";
import { Usage } from "../../values/Usage";
import { ChargeBreakdown } from "../customers/Working";
import { ratesOf, type NamedRate } from "./dimensions";
import styles from "./Prices.module.css";
import type { TypedTerms } from "./terms";

interface Props {
  typed: TypedTerms;
  /** The typed terms in the form that the API accepts. Undefined while they are not complete. */
  terms: Terms | undefined;
  meter: string;
}

/** The typed usage to try. */
interface Tried {
  quantity: string;
  events: string;
}

const firstTried: Tried = { quantity: "1250", events: "1" };

/** Shows the charge of the usage to try at the typed terms, step by step. */
export function WorkedCharge({ typed, terms, meter }: Props) {
  const [tried, setTried] = useState<Record<string, Tried>>({});
  const rates = ratesOf(typed);
  const triedOf = ({ key }: NamedRate) => tried[key] ?? firstTried;
  const isComplete = rates.every((rate) => isAmount(triedOf(rate).quantity) && (!rate.hasFee || wrongWhole(triedOf(rate).events) === undefined));
  const change = (rate: NamedRate, part: Partial<Tried>) => setTried({ ...tried, [rate.key]: { ...triedOf(rate), ...part } });
  const parts = rates.map((rate) => ({ quantity: triedOf(rate).quantity, ...(rate.hasFee && { event_count: Number(triedOf(rate).events) }) }));
  const usage = typed.by.length === 0 ? parts[0]! : { by_dimension: parts.flatMap((part, index) => (rates[index]!.example ? [{ ...part, dimension: rates[index]!.example }] : [])) };
  return (
    <div className={styles.worked} data-scratch>
      {rates.map((rate) => (
        <TriedFields key={rate.key} rate={rate} tried={triedOf(rate)} change={(part) => change(rate, part)} />
      ))}
      {terms && isComplete ? <Charge terms={terms} meter={meter} usage={usage} /> : <p className="muted">The charge appears here once all fields are complete, with numbers such as 0.02.</p>}
    </div>
  );
}

/** Shows the fields for the usage to try. */
function TriedFields({ rate: { name, hasFee, example }, tried: { quantity, events }, change }: { rate: NamedRate; tried: Tried; change: (part: Partial<Tried>) => void }) {
  const of = name && `, ${name}`;
  if (!example) return <p className="muted">No usage to try{of}: the prices above it match all of its usage.</p>;
  return (
    <div className={styles.tried}>
      <NumberField label={`Usage to try${of}`} value={quantity} wrong={wrongAmount} change={(text) => change({ quantity: text })} />
      {hasFee && <NumberField label={`Events to try${of}`} inputMode="numeric" value={events} wrong={wrongWhole} change={(text) => change({ events: text })} />}
    </div>
  );
}

/** Shows the charge for the usage to try, step by step. */
function Charge({ terms, meter, usage }: { terms: Terms; meter: string; usage: Schema<"Quantity"> }) {
  const [tried] = useDebouncedValue(usage, 250);
  const { data, error } = useQuery({ ...calculation(terms, [tried], true), placeholderData: keepPreviousData });
  const [charge] = data?.charges ?? [];
  if (error) return <Refused error={error} />;
  if (!data || !charge) return <LoadingText />;
  const first: Schema<"Step"> = { name: "usage", description: "The usage to try.", amount: charge.quantity, unit: "units" };
  return (
    <>
      <p role="status" className={styles.paper}>
        <Usage meter={meter} value={charge.quantity} unitless="units" /> cost <Amount value={charge.charge} currency={data.currency} />
      </p>
      <ChargeBreakdown meter={meter} steps={[first, ...(charge.steps ?? [])]} />
    </>
  );
}
