import { Button } from "@mantine/core";
import { Failure, type Schema } from "../api/client";
import { useSession } from "../api/session";
import { Changes, customersOf } from "../values/Changes";
import { Instant } from "../values/Instant";
import { range } from "../values/instants";
import styles from "./acts.module.css";
import { Dialog } from "./Dialog";
import { Verb } from "./Verb";

/** Returns the confirmation that a change needs, if the API refused the change because of a missing confirmation. */
export const confirmationOf = (error: Error | null) => (error instanceof Failure ? error.confirmation : undefined);

interface Props {
  of: Schema<"Confirmation">;
  needs: string;
  leave: () => void;
  /** Sends the same request again, with the token. */
  confirm: (token: string) => void;
}

/** Shows the effect of a change on the bills, before the change is made. */
export function Confirmation({ of, needs, leave, confirm }: Props) {
  return (
    <Dialog title={of.periods.length > 0 ? "Change the running bills" : "Change the currency"} opened leave={leave}>
      <div className={styles.form} role="status">
        <div>
          {of.periods.length > 0 ? <Running of={of} /> : <p>From a later billing period on, the change charges {customersOf(of.customers)} in a currency that differs from their bills.</p>}
          {of.uncounted.length > 0 && <p>The charges of these meters are unknown until earlier events are counted, and are not included: {of.uncounted.join(", ")}.</p>}
          <p>Closed periods do not change.</p>
        </div>
        <div className={styles.buttons}>
          <Button variant="default" size="sm" onClick={leave} data-autofocus>
            Back
          </Button>
          <Verb needs={needs} variant="danger" onClick={() => confirm(of.token)}>
            Change the bills
          </Verb>
        </div>
      </div>
    </Dialog>
  );
}

/** Shows the effect on billing periods that have begun. */
function Running({ of: { customers, periods, changes, uncounted, as_of } }: Pick<Props, "of">) {
  const { tenant } = useSession();
  return (
    <>
      <p>The change affects the charges of {customersOf(customers)} in running billing periods:</p>
      <ul>
        {periods.map(({ start, end, customers }) => (
          <li key={start}>
            {range(start, end, tenant.timezone)}
            <span className="muted">, {customersOf(customers)}</span>
          </li>
        ))}
      </ul>
      {changes.length > 0 ? (
        <>
          <p>
            Charges as of <Instant at={as_of} />, before and after the change:
          </p>
          <Changes changes={changes} />
        </>
      ) : (
        uncounted.length === 0 && (
          <p>
            As of <Instant at={as_of} />, no charge changes. Later usage is charged differently.
          </p>
        )
      )}
    </>
  );
}
