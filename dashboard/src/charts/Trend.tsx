import { shares } from "../values/decimal";
import styles from "./Trend.module.css";

const [width, gap, height] = [3, 1, 20];

/** A bar for each value, in the order of time, of what stands beside it in digits. */
export function Trend({ values }: { values: number[] }) {
  return (
    <svg className={styles.trend} width={values.length * (width + gap) - gap} height={height} aria-hidden="true">
      {shares(values.map(String)).map((share, index) => {
        const high = share > 0 ? Math.max(2, share * height) : 1;
        return <rect key={index} className={share > 0 ? undefined : styles.none} x={index * (width + gap)} y={height - high} width={width} height={high} />;
      })}
    </svg>
  );
}
