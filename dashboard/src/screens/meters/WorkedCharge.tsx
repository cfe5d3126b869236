import { TextInput } from "@mantine/core";
import { Fragment, useState } from "react";
import { useUnit } from "../../api/meters";
import { LoadingText } from "../../states/Loading";
import { isAmount, wrongAmount } from "../../values/decimal";
import { arithmetic } from "../customers/arithmetic";
import { charge, type Terms } from "./charge";
import styles from "./Prices.module.css";

/** What some usage would be charged, worked out while it is typed. */
export function WorkedCharge({ terms, meter }: { terms: Terms; meter: string }) {
  const [usage, setUsage] = useState("1250");
  const unit = useUnit(meter);
  const { base, included, rate } = { base: terms.base || "0", included: terms.included || "0", rate: terms.rate || "0" };
  const complete = [base, included, rate, usage].every(isAmount) && /^[A-Z]{3}$/.test(terms.currency);
  return (
    <div className={styles.worked} data-scratch>
      <TextInput label="Usage to try" inputMode="decimal" autoComplete="off" value={usage} error={wrongAmount(usage)} onChange={(event) => setUsage(event.currentTarget.value.trim())} />
      <p role="status" className={styles.paper}>
        {unit === undefined ? (
          <LoadingText />
        ) : complete ? (
          <>
            {arithmetic(charge({ base, included, rate, currency: terms.currency }, usage), unit).map((part, index) => (
              <Fragment key={part}>
                {index > 0 && <span className="muted"> → </span>}
                <span className="number">{part}</span>
              </Fragment>
            ))}{" "}
            <span className="muted">{terms.currency}</span>
          </>
        ) : (
          <span className="muted">The charge appears here once all fields are numbers, such as 0.02.</span>
        )}
      </p>
    </div>
  );
}
