import { shares, sum } from "../values/decimal";
import styles from "./Level.module.css";

interface Props {
  used: string;
  reserved: string;
  limit: string;
}

/** Shows a bar of used and reserved amounts, with a mark at an exceeded limit. The text beside it has the numbers. */
export function Level({ used, reserved, limit }: Props) {
  const [toUsed = 0, toReserved = 0, toLimit = 0] = shares([used, sum([used, reserved]), limit]).map((share) => 100 * share);
  return (
    <svg className={styles.level} width="100%" height="8" aria-hidden="true">
      <rect className={styles.limit} width="100%" height="8" />
      <rect className={styles.reserved} width={`${toReserved}%`} height="8" />
      <rect className={styles.used} width={`${toUsed}%`} height="8" />
      {toLimit < 100 && <rect className={styles.mark} x={`${toLimit}%`} width="2" height="8" />}
    </svg>
  );
}
