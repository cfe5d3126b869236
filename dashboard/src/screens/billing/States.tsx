import { State } from "../../values/State";
import { cell, Table } from "../../values/Table";
import styles from "./billing.module.css";
import { holdStates, periodStates, reconciliationStates, reportStates, syncStates, type StateText } from "./states";

const kinds: [string, Record<string, StateText>][] = [
  ["Syncs", syncStates],
  ["Reports that a sync sends", reportStates],
  ["Billing periods", periodStates],
  ["Held invoices", holdStates],
  ["Reconciliation", reconciliationStates],
];
const columns = [{ title: "State" }, { title: "What it means" }];

/** Explains each state of billing. */
export function States() {
  return kinds.map(([kind, states]) => (
    <section key={kind} aria-label={kind}>
      <h2 className={styles.section}>{kind}</h2>
      <Table caption={`States of: ${kind}`} columns={columns}>
        <tbody>
          {Object.entries(states).map(([name, [means, word, says]]) => (
            <tr key={name}>
              <td className={`${cell.main} ${styles.state}`}>
                <State is={means}>{word}</State>
              </td>
              <td className={styles.text}>{says}</td>
            </tr>
          ))}
        </tbody>
      </Table>
    </section>
  ));
}
