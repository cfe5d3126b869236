import { Button } from "@mantine/core";
import { NumberField } from "../../acts/NumberField";
import { brokenRule } from "../../api/client";
import styles from "./Prices.module.css";
import { mostTiers, newTier, wrongTier, type TypedTier } from "./rates";

interface Props {
  tiers: TypedTier[];
  /** The prefix of the tiers in errors of the API: "", or a path that ends with a dot. */
  at: string;
  error: Error | null;
  change: (tiers: TypedTier[]) => void;
}

/** Shows the tiers of a price as a table. The last tier has no limit. */
export function TierFields({ tiers, at, error, change }: Props) {
  const last = tiers.length - 1;
  const add = () => change([...tiers.slice(0, last), newTier, tiers[last]!]);
  const field = (index: number, name: keyof TypedTier, label: string, required: boolean) => (
    <NumberField
      aria-label={`Tier ${index + 1}: ${label}`}
      required={required}
      value={tiers[index]![name]}
      wrong={() => wrongTier(tiers, index, name)}
      error={brokenRule(error, `${at}tiers[${index}].${name}`)}
      change={(text) => change(tiers.map((tier, other) => (other === index ? { ...tier, [name]: text } : tier)))}
    />
  );
  return (
    <div>
      <table className={styles.tiers}>
        <caption>Tiers, counted from the first unit above the included units</caption>
        <thead>
          <tr>
            <th scope="col">Up to</th>
            <th scope="col">Unit price</th>
            <th scope="col">Flat fee</th>
            <th scope="col">
              <span className="unseen">Remove</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {tiers.map((_, index) => (
            <tr key={index}>
              <td>{index < last ? field(index, "up_to", "up to", true) : <span className="muted">no limit</span>}</td>
              <td>{field(index, "unit_price", "unit price", true)}</td>
              <td>{field(index, "flat_fee", "flat fee", false)}</td>
              <td>
                {index < last && (
                  <Button variant="default" size="xs" aria-label={`Remove tier ${index + 1}`} onClick={() => change(tiers.filter((_, other) => other !== index))}>
                    Remove
                  </Button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {tiers.length < mostTiers && (
        <Button variant="default" size="xs" onClick={add}>
          Add a tier
        </Button>
      )}
    </div>
  );
}
