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
import { Working } from "../customers/Working";
import styles from "./Prices.module.css";

interface Props {
  /** Undefined while they are not complete. */
  terms: Terms | undefined;
  meter: string;
}

/** The charge of some usage at terms while they are typed, step by step. */
export function WorkedCharge({ terms, meter }: Props) {
  const [usage, setUsage] = useState("1250");
  const [events, setEvents] = useState("1");
  const hasFee = terms?.fixed_fee !== undefined;
  const isComplete = isAmount(usage) && (!hasFee || wrongWhole(events) === undefined);
  return (
    <div className={styles.worked} data-scratch>
      <NumberField label="Usage to try" value={usage} wrong={wrongAmount} change={setUsage} />
      {hasFee && <NumberField label="Events to try" inputMode="numeric" value={events} wrong={wrongWhole} change={setEvents} />}
      {terms && isComplete ? (
        <Charge terms={terms} meter={meter} quantity={usage} events={hasFee ? Number(events) : 0} />
      ) : (
        <p className="muted">The charge appears here once all fields are numbers, such as 0.02.</p>
      )}
    </div>
  );
}

function Charge({ terms, meter, quantity, events }: { terms: Terms; meter: string; quantity: string; events: number }) {
  const [tried] = useDebouncedValue(quantity, 250);
  const { data, error } = useQuery({ ...calculation(terms, [{ quantity: tried, event_count: events }], true), placeholderData: keepPreviousData });
  const [charge] = data?.charges ?? [];
  if (error) return <Refused error={error} />;
  if (!data || !charge) return <LoadingText />;
  const usage: Schema<"Step"> = { name: "usage", description: "The usage to try.", amount: charge.quantity, unit: "units" };
  return (
    <>
      <p role="status" className={styles.paper}>
        <Usage meter={meter} value={charge.quantity} unitless="units" /> cost <Amount value={charge.charge} currency={data.currency} />
      </p>
      <Working meter={meter} steps={[usage, ...(charge.steps ?? [])]} />
    </>
  );
}
