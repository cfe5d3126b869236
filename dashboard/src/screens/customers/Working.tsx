import { useQuery } from "@tanstack/react-query";
import { Fragment } from "react";
import { answer, api, type Schema } from "../../api/client";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Amount, Quantity } from "../../values/Amount";
import { arithmetic } from "./arithmetic";
import styles from "./Working.module.css";

type Step = Schema<"Step">;

/** How a meter's amount of the running period is worked out. */
export function Explained({ customer, meter }: { customer: string; meter: string }) {
  const { data, error, refetch } = useQuery({
    queryKey: ["explain", customer, meter],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/explain", { params: { query: { customer, meter } }, signal })),
  });
  if (error) return <Failed what="The calculation" error={error} retry={() => void refetch()} />;
  if (data) return <Working steps={data.steps} />;
  return (
    <div className={styles.working} aria-busy>
      <LoadingText />
    </div>
  );
}

/** How an amount is worked out: a line as on paper, and every step with its reason. */
export function Working({ steps }: { steps: Step[] }) {
  const line = arithmetic(steps);
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
      <Steps steps={steps} />
    </div>
  );
}

function Steps({ steps }: { steps: Step[] }) {
  return (
    <ol className={styles.steps}>
      {steps.map((step, index) => (
        <li key={index}>
          <div className={styles.step}>
            <span className="muted">{step.description}</span>
            <span>{step.unit === "units" ? <Quantity value={step.amount} unit="units" /> : <Amount value={step.amount} currency={step.unit} />}</span>
          </div>
          {step.steps && step.steps.length > 0 && <Steps steps={step.steps} />}
        </li>
      ))}
    </ol>
  );
}
