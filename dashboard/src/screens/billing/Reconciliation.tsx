import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { Confirm } from "../../acts/Confirm";
import { useAct } from "../../acts/useAct";
import { answer, api, type Schema } from "../../api/client";
import { customerLabel } from "../../api/customers";
import { useSession } from "../../api/session";
import { Filter } from "../../frame/Filter";
import { Opener } from "../../frame/Opener";
import { Empty } from "../../states/Empty";
import { Actor } from "../../values/Actor";
import { Amount } from "../../values/Amount";
import { CustomerName } from "../../values/CustomerName";
import { Identifier } from "../../values/Identifier";
import { Instant } from "../../values/Instant";
import { range } from "../../values/instants";
import { List } from "../../values/List";
import { Reason } from "../../values/Reason";
import { State } from "../../values/State";
import { cell, Table } from "../../values/Table";
import { Usage } from "../../values/Usage";
import { Workflows } from "../../values/Workflows";
import styles from "./billing.module.css";
import { reconciliationStates } from "./states";

type Line = Schema<"Reconciliation">;

const columns = [
  { title: "Meter" },
  { title: "Customer" },
  { title: "Period" },
  { title: "State" },
  { title: "Odometer", number: true },
  { title: "Counted by the provider", number: true },
  { title: "Invoiced", number: true },
];

const states = [
  ["", "All lines"],
  ["disputed", "Disputed"],
  ["open", "Waiting for the invoice"],
  ["carried", "Billed next"],
  ["agreed", "Agreed"],
  ["waived", "Waived"],
  ["written_off", "Written off"],
] as const;

/** Identifies a line in the address. */
const lineID = (line: Line) => `${line.period.id}.${line.meter_id}`;

/** Compares closed periods with the provider's final invoices, by meter, for one customer or all customers. */
export function Reconciliation({ customer }: { customer?: string }) {
  const { state, page, open } = useSearch({ strict: false });
  const chosen = states.map(([value]) => value).find((value) => value !== "" && value === state);
  const query = useQuery({
    queryKey: ["reconciliation", { customer, state: chosen, page }],
    queryFn: ({ signal }) => {
      const query = { page_size: 25, ...(customer !== undefined && { customer }), ...(chosen && { state: chosen }), ...(page && { page_token: page }) };
      return answer(api.GET("/v1/billing/reconciliation", { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
  });
  return (
    <>
      <div className={styles.filters}>
        <Filter name="state" label="Lines in the state" options={states} />
      </div>
      <List what="The reconciliation" columns={columns} query={query} page={page} empty={<NoLines filtered={chosen !== undefined} />}>
        {(line) => <Row key={lineID(line)} line={line} open={lineID(line) === open} />}
      </List>
    </>
  );
}

/** Shows a line and, if it is open, its details. */
function Row({ line, open }: { line: Line; open: boolean }) {
  const { tenant } = useSession();
  const [means, state, says] = reconciliationStates[line.state];
  return (
    <>
      <tr>
        <td className={cell.main}>
          <Opener name="open" value={lineID(line)} open={open}>
            {line.meter_slug}
          </Opener>
        </td>
        <td>
          <CustomerName of={line} />
        </td>
        <td className="number">{range(line.period.start, line.period.end, tenant.timezone)}</td>
        <td>
          <State is={means} says={says}>{state}</State>
        </td>
        <td className={cell.number} data-title="ours">
          <Units line={line} value={line.bills === "amounts" ? line.ours.charge : line.ours.usage} />
        </td>
        <td className={cell.number} data-title="counted">
          <Units line={line} value={line.counted_quantity} />
        </td>
        <td className={cell.number} data-title="invoiced">
          <Units line={line} value={line.invoiced.quantity} />
        </td>
      </tr>
      {open && (
        <tr>
          <td colSpan={columns.length} className={cell.whole}>
            <Opened line={line} />
          </td>
        </tr>
      )}
    </>
  );
}

/** Shows a value of a line: money if the provider bills the period in amounts, otherwise units. */
function Units({ line, value }: { line: Line; value: string }) {
  return line.bills === "amounts" ? <Amount value={value} currency={line.ours.currency} /> : <Usage meter={line.meter_slug} value={value} />;
}

const invoiceColumns = [{ title: "Invoice" }, { title: "State" }, { title: "Final" }, { title: "Quantity", number: true }, { title: "Amount", number: true }];

/** Shows the details of a line, and the buttons that resolve its difference. */
function Opened({ line }: { line: Line }) {
  const changes = [["reconciliation"]];
  const body = (reason: string) => ({ params: { path: { period: line.period.id, meter: line.meter_slug } }, body: { reason } });
  const rebill = useAct((reason: string) => answer(api.POST("/v1/billing/reconciliation/{period}/{meter}/rebill", body(reason))), { changes });
  const waive = useAct((reason: string) => answer(api.POST("/v1/billing/reconciliation/{period}/{meter}/waive", body(reason))), { changes });
  const writeOff = useAct((reason: string) => answer(api.POST("/v1/billing/reconciliation/{period}/{meter}/write-off", body(reason))), { changes });
  const more = line.state === "disputed"; // the invoices bill more than was reported, or a different amount
  const common = { needs: "billing:write", thing: `${line.meter_slug} of ${customerLabel(line)}`, asks: "Reason, for the audit log" };
  return (
    <div className={styles.opened}>
      {line.invoices.length > 0 && (
        <Table caption="Provider's invoices of the period" columns={invoiceColumns}>
          <tbody>
            {line.invoices.map((invoice) => (
              <tr key={invoice.id}>
                <td className={cell.main}>
                  <Identifier>{invoice.id}</Identifier>
                </td>
                <td>{invoice.void ? "void" : invoice.status}</td>
                <td>{invoice.finalized_at ? <Instant at={invoice.finalized_at} /> : <span className="muted">not yet</span>}</td>
                <td className={cell.number} data-title="quantity">
                  <Usage meter={line.bills === "amounts" ? "" : line.meter_slug} value={invoice.quantity} />
                </td>
                <td className={cell.number}>
                  <Amount value={invoice.amount} currency={invoice.currency} />
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
      <dl className={styles.facts}>
        {line.reason && (
          <>
            <dt>Why</dt>
            <dd>
              <Reason of={line} />
            </dd>
          </>
        )}
        <dt>Accepted by the provider</dt>
        <dd>
          <Units line={line} value={line.accepted_quantity} />
        </dd>
        {line.billed_quantity !== undefined && (
          <>
            <dt>Counts as billed</dt>
            <dd>
              <Units line={line} value={line.billed_quantity} />
            </dd>
          </>
        )}
        {line.decided_at && (
          <>
            <dt>Decided</dt>
            <dd>
              {line.note} {line.decided_by && (
                <>
                  <span className="muted">by</span> <Actor is={line.decided_by} />,{" "}
                </>
              )}
              <Instant at={line.decided_at} />
            </dd>
          </>
        )}
        <dt>Customer</dt>
        <dd>
          <Link to="/customers/$customer/bill" params={{ customer: line.customer_id }}>
            <CustomerName of={line} />
          </Link>{" "}
          <Workflows of={line.customer_id} />
        </dd>
      </dl>
      <div className={styles.verbs}>
        {line.actions.includes("rebill") && (
          <Confirm {...common} verb="Rebill" act={rebill}>
            {more ? "The customer's next period bills the difference, even if this lowers its bill." : "The customer's next period bills the amount that the invoices lack."}
          </Confirm>
        )}
        {line.actions.includes("waive") && (
          <Confirm {...common} verb="Waive" act={waive} danger>
            {more ? "The invoices do not change, and no later period bills the difference." : "The amount that the invoices lack is never billed."}
          </Confirm>
        )}
        {line.actions.includes("write_off") && (
          <Confirm {...common} verb="Write off" act={writeOff} danger>
            The amount that the invoices lack is recorded as a loss and never billed.
          </Confirm>
        )}
      </div>
    </div>
  );
}

function NoLines({ filtered }: { filtered: boolean }) {
  if (filtered) return <Empty title="No line is in this state">{null}</Empty>;
  return (
    <Empty title="Nothing to reconcile yet">
      <p>After a billing period has closed, each meter that the provider bills gets a line here: the usage in Odometer, the usage that the provider has counted, and the usage that its final invoices bill.</p>
    </Empty>
  );
}
