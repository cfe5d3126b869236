import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import type { Schema } from "../../api/client";
import { useSession } from "../../api/session";
import { unrated, unratedTotals } from "../../api/unrated";
import { Empty } from "../../states/Empty";
import { Amount } from "../../values/Amount";
import { CustomerName } from "../../values/CustomerName";
import { Identifier } from "../../values/Identifier";
import { written } from "../../values/instants";
import { List } from "../../values/List";
import { Reason } from "../../values/Reason";
import { cell, Table } from "../../values/Table";
import { Usage } from "../../values/Usage";
import styles from "./billing.module.css";

const columns = [{ title: "Customer" }, { title: "Meter" }, { title: "Period" }, { title: "Reason" }, { title: "Usage", number: true }, { title: "Estimate", number: true }];
const byReason = [{ title: "Reason" }, { title: "Customers", number: true }, { title: "Lines", number: true }, { title: "Estimate", number: true }];

/** Lists the usage that will not be billed: in open or closed periods, or before a customer's first period. */
export function Unrated() {
  const { page } = useSearch({ from: "/frame/billing/unrated" });
  const query = useQuery(unrated(page));
  const totals = useQuery({ ...unratedTotals, enabled: !page });
  return (
    <>
      <p className="muted">
        Usage of this month and the two previous months that will not be billed. It is in open periods, in closed periods that no provider bills, or before a customer's first period. The
        estimate is the charge at the current price.
      </p>
      {!page && totals.data && totals.data.length > 0 && <Totals totals={totals.data} />}
      {/* The list waits for the totals above it. Otherwise, the list would move when they appear. */}
      {!totals.isLoading && (
        <List what="The unrated usage" columns={columns} query={query} page={page} empty={<None />} rows={5}>
          {(line) => <Row key={`${line.customer_id}.${line.meter_id}.${line.period.start}.${line.reason}`} line={line} />}
        </List>
      )}
    </>
  );
}

/** Shows the totals of unrated usage by reason and currency. */
function Totals({ totals }: { totals: Schema<"UnratedTotal">[] }) {
  return (
    <Table caption="Unrated usage by reason and currency" columns={byReason}>
      <tbody>
        {totals.map((total) => (
          <tr key={`${total.reason}.${total.currency}`}>
            <td className={cell.main}>
              <Reason of={total} />
            </td>
            <td className={cell.number} data-title="customers">
              {total.customers}
            </td>
            <td className={cell.number} data-title="lines">
              {total.lines}
            </td>
            <td className={cell.number} data-title="estimate">
              <Estimate value={total.estimate} currency={total.currency} />
            </td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

/** Shows a line with its message. Only a no_subscription_item line shows a next step: the totals show the others. */
function Row({ line }: { line: Schema<"UnratedUsage"> }) {
  const { tenant } = useSession();
  const { period } = line;
  return (
    <tr>
      <td className={cell.main}>
        <Link to="/customers/$customer/bill" params={{ customer: line.customer_id }}>
          <CustomerName of={line} />
        </Link>
      </td>
      <td>
        <Identifier>{line.meter_slug}</Identifier>
      </td>
      <td>
        {written(period.start, tenant.timezone, "day")} <span className="muted">{period.state.replace("_", " ")}</span>
      </td>
      <td className={styles.text}>
        <Reason of={line.reason === "no_subscription_item" ? line : { message: line.message }} />
      </td>
      <td className={cell.number} data-title="usage">
        <Usage meter={line.meter_slug} value={line.usage} />
      </td>
      <td className={cell.number} data-title="estimate">
        <Estimate value={line.estimate} currency={line.currency} />
      </td>
    </tr>
  );
}

/** Shows the estimated charge, or that there is no price. */
function Estimate({ value, currency }: { value: string | null; currency: string | null }) {
  return value !== null && currency !== null ? <Amount value={value} currency={currency} /> : <span className="muted">no price</span>;
}

function None() {
  return (
    <Empty title="All usage is billed">
      <p>Usage that no price, provider or subscription covers is listed here. If it has a price, its estimated charge is shown.</p>
    </Empty>
  );
}
