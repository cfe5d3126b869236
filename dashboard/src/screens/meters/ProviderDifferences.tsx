import type { Schema } from "../../api/client";
import { customersOf } from "../../values/Changes";
import styles from "./Prices.module.css";

/** Lists the provider's prices that differ from Odometer's price. The provider bills them instead of that price. */
export function ProviderDifferences({ of }: { of: Schema<"ProviderDifference">[] }) {
  if (of.length === 0) return null;
  return (
    <div role="status" className={styles.differs}>
      <p>The provider bills its own prices instead of this price:</p>
      <ul>
        {of.map(({ their_price, first_difference, customers }) => (
          <li key={`${their_price} ${first_difference}`}>
            {their_price} at the provider, for {customersOf(customers)} ({first_difference})
          </li>
        ))}
      </ul>
    </div>
  );
}
