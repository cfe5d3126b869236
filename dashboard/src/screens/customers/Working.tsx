import { useQuery } from "@tanstack/react-query";
import { Fragment } from "react";
import { answer, api, type Schema } from "../../api/client";
import { useUnit } from "../../api/meters";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Amount } from "../../values/Amount";
import { grouped } from "../../values/decimal";
import { groupText } from "../../values/groups";
import { Usage } from "../../values/Usage";
import { arithmetic } from "./arithmetic";
import styles from "./Working.module.css";

type Step = Schema<"Step">;

/** Shows the breakdown of a meter's charge in the current billing period. */
export function CurrentBreakdown({ customer, meter }: { customer: string; meter: string }) {
  const { data, error, refetch } = useQuery({
    queryKey: ["explain", customer, meter],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/explain", { params: { query: { customer, meter } }, signal })),
  });
  if (error) return <Failed what="The calculation" error={error} retry={() => void refetch()} />;
  if (data) return <ChargeBreakdown meter={meter} steps={data.steps} />;
  return (
    <div className={styles.working} aria-busy>
      <LoadingText />
    </div>
  );
}

/** Shows the breakdown of an amount: the calculation in one line, if possible, and every step with a description. */
export function ChargeBreakdown({ meter, steps }: { meter: string; steps: Step[] }) {
  const line = arithmetic(steps, useUnit(meter) ?? "");
  return (
    <div className={styles.working}>
      {line.length > 0 && (
        <p className={styles.paper}>
          {line.map((part, index) => (
            <Fragment key={index}>
              {index > 0 && <span className="muted"> → </span>}
              <span className="number">{part}</span>
            </Fragment>
          ))}
        </p>
      )}
      <Steps meter={meter} steps={steps} />
    </div>
  );
}

/** Lists the steps of the calculation. A step can contain further steps. */
function Steps({ meter, steps }: { meter: string; steps: Step[] }) {
  return (
    <ol className={styles.steps}>
      {steps.map((step, index) => (
        <li key={index}>
          <div className={styles.step}>
            <span className="muted">
              {step.description}
              {step.dimension && ` ${groupText(step.dimension)}`}
            </span>
            <StepAmount meter={meter} step={step} />
          </div>
          {step.steps && step.steps.length > 0 && <Steps meter={meter} steps={step.steps} />}
        </li>
      ))}
    </ol>
  );
}

/** Shows the amount of a step in its unit. */
function StepAmount({ meter, step: { amount, unit } }: { meter: string; step: Step }) {
  if (unit === "units") return <Usage meter={meter} value={amount} unitless="units" />;
  if (unit === "packages" || unit === "percent") {
    return (
      <span className="number">
        {grouped(amount)} {unit === "packages" && amount === "1" ? "package" : unit}
      </span>
    );
  }
  return <Amount value={amount} currency={unit} />;
}
