import { valueText, type GroupKey } from "../../values/groups";
import styles from "./Quotas.module.css";

/** Lists the features of a plan, by key. */
export function Features({ of }: { of: GroupKey }) {
  const features = Object.entries(of);
  if (features.length === 0) return <p className="muted">The plan has no features.</p>;
  return (
    <dl className={styles.features}>
      {features.map(([key, value]) => (
        <div key={key}>
          <dt className="mono">{key}</dt>
          <dd>{valueText(value)}</dd>
        </div>
      ))}
    </dl>
  );
}
