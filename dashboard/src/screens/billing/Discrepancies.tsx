import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { discrepancies } from "../../api/discrepancies";
import type { Schema } from "../../api/client";
import { Empty } from "../../states/Empty";
import { Ago } from "../../values/Ago";
import { Quantity } from "../../values/Amount";
import { Identifier } from "../../values/Identifier";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { Usage } from "../../values/Usage";

const columns = [
  { title: "Meter" },
  { title: "Customer" },
  { title: "Day, in UTC" },
  { title: "Usage in totals", number: true },
  { title: "Usage in events", number: true },
  { title: "Events counted", number: true },
  { title: "Found", number: true },
];

/** Lists the differences that the daily audit found between billed totals and their events. */
export function Discrepancies() {
  const { page } = useSearch({ from: "/frame/billing/discrepancies" });
  return (
    <List what="The discrepancies" columns={columns} query={useQuery(discrepancies(page))} page={page} empty={<None />} rows={2}>
      {(found) => <Row key={`${found.meter_id}.${found.customer_id}.${found.day}`} found={found} />}
    </List>
  );
}

/** Shows a difference between the billed totals and the stored events. */
function Row({ found }: { found: Schema<"UsageDiscrepancy"> }) {
  return (
    <tr>
      <td className={cell.main}>
        <Identifier>{found.meter_slug}</Identifier>
      </td>
      <td>{found.customer_external_id === null ? "all customers" : found.customer_name || found.customer_external_id}</td>
      <td className="number">{found.day}</td>
      <td className={cell.number} data-title="totals">
        <Usage meter={found.meter_slug} value={found.total} />
      </td>
      <td className={cell.number} data-title="events">
        <Usage meter={found.meter_slug} value={found.events} />
      </td>
      <td className={cell.number} data-title="events counted">
        <Quantity value={String(found.total_count)} /> <span className="muted">of</span> <Quantity value={String(found.event_count)} />
      </td>
      <td className={cell.number}>
        <Ago at={found.found_at} />
      </td>
    </tr>
  );
}

function None() {
  return (
    <Empty title="Totals and events agree">
      <p>Once a day, the service compares the billed totals with the stored events. A difference is a fault of the service and is listed here: report it to the operator of the service.</p>
    </Empty>
  );
}
