import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { Confirm } from "../../acts/Confirm";
import { useAct } from "../../acts/useAct";
import { answer, api, type Schema } from "../../api/client";
import { useSession } from "../../api/session";
import { Filter } from "../../frame/Filter";
import { Opener } from "../../frame/Opener";
import { Empty } from "../../states/Empty";
import { Actor } from "../../values/Actor";
import { Ago } from "../../values/Ago";
import { CustomerName } from "../../values/CustomerName";
import { Identifier } from "../../values/Identifier";
import { range } from "../../values/instants";
import { List } from "../../values/List";
import { Reason } from "../../values/Reason";
import { State } from "../../values/State";
import { cell, Table } from "../../values/Table";
import { Usage } from "../../values/Usage";
import { Workflows } from "../../values/Workflows";
import styles from "./billing.module.css";
import { holdStates } from "./states";

type Hold = Schema<"InvoiceHold">;

const columns = [{ title: "Invoice" }, { title: "Customer" }, { title: "State" }, { title: "Period" }, { title: "Finalized automatically", number: true }];

const states = [
  ["", "All invoices"],
  ["disagrees", "Invoices that differ"],
  ["held", "Held"],
  ["releasing", "Being released"],
  ["released", "Released"],
  ["expired", "Deadline passed"],
  ["finalized", "Finalized at the provider"],
  ["theirs", "Decided at the provider"],
  ["refused", "Not held"],
  ["planned", "Being held"],
] as const;

/** Lists current and ended holds. Odometer holds a draft invoice to compare it with the reported usage. */
export function Holds() {
  const { state, page, hold } = useSearch({ from: "/frame/billing/holds" });
  const chosen = states.map(([value]) => value).find((value) => value !== "" && value === state);
  const query = useQuery({
    queryKey: ["holds", { state: chosen, page }],
    queryFn: ({ signal }) => {
      const query = { page_size: 25, ...(chosen && { state: chosen }), ...(page && { page_token: page }) };
      return answer(api.GET("/v1/billing/holds", { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: 15_000,
  });
  return (
    <>
      <div className={styles.filters}>
        <Filter name="state" label="Invoices in the state" options={states} />
      </div>
      <List what="The held invoices" columns={columns} query={query} page={page} empty={<NoHolds filtered={chosen !== undefined} />}>
        {(one) => <Row key={one.id} hold={one} open={one.id === hold} />}
      </List>
    </>
  );
}

/** Shows a hold and, if it is open, its details. */
function Row({ hold, open }: { hold: Hold; open: boolean }) {
  const { tenant } = useSession();
  const [means, state, says] = holdStates[hold.state];
  return (
    <>
      <tr>
        <td className={cell.main}>
          <Opener name="hold" value={hold.id} open={open}>
            {hold.invoice_id}
          </Opener>
        </td>
        <td>
          <CustomerName of={hold} />
        </td>
        <td>
          <State is={means} says={says}>{state}</State>
        </td>
        <td className="number">{range(hold.period.start, hold.period.end, tenant.timezone)}</td>
        <td className={cell.number}>{hold.ended_at ? <span className="muted">over</span> : <Ago at={hold.deadline} />}</td>
      </tr>
      {open && (
        <tr>
          <td colSpan={columns.length} className={cell.whole}>
            <Opened hold={hold} />
          </td>
        </tr>
      )}
    </>
  );
}

const reasonColumns = [{ title: "Finding" }, { title: "Odometer", number: true }, { title: "Provider", number: true }];

/** Shows the findings for the invoice, and the button that releases it. */
function Opened({ hold }: { hold: Hold }) {
  const release = useAct((reason: string) => answer(api.POST("/v1/billing/holds/{id}/release", { params: { path: { id: hold.id } }, body: { reason } })), {
    changes: [["holds"]],
  });
  return (
    <div className={styles.opened}>
      {hold.reasons.length > 0 ? (
        <Table caption="Findings for this invoice" columns={reasonColumns}>
          <tbody>
            {hold.reasons.map((reason, index) => (
              <tr key={index}>
                <td className={styles.text}>
                  <Reason of={reason} />
                </td>
                <td className={cell.number} data-title={reason.ours && "ours"}>
                  {reason.ours !== undefined && <Usage meter={meterOf(reason, "charge_differs")} value={reason.ours} />}
                </td>
                <td className={cell.number} data-title={reason.theirs && "theirs"}>
                  {reason.theirs !== undefined && <Usage meter={meterOf(reason, "charge_differs", "price_differs")} value={reason.theirs} />}
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      ) : (
        <p className="muted">The invoice and the reported usage do not differ.</p>
      )}
      <dl className={styles.facts}>
        <dt>Customer</dt>
        <dd>
          <Link to="/customers/$customer/bill" params={{ customer: hold.customer_id }}>
            <CustomerName of={hold} />
          </Link>{" "}
          <Workflows of={hold.customer_id} />
        </dd>
        <dt>Compared</dt>
        <dd>{hold.looked_at ? <Ago at={hold.looked_at} /> : <span className="muted">waits for the provider's usage summaries</span>}</dd>
        {hold.note && (
          <>
            <dt>Released</dt>
            <dd>
              {hold.note} <span className="muted">by</span> <Actor is={hold.released_by} />
            </dd>
          </>
        )}
        <dt>Hold</dt>
        <dd>
          <Identifier>{hold.id}</Identifier>
        </dd>
      </dl>
      {hold.actions.includes("release") && (
        <div className={styles.verbs}>
          <Confirm verb="Release" thing={hold.invoice_id} needs="billing:write" act={release} asks="Reason, for the audit log">
            The provider finalizes the invoice and collects it unchanged. The reconciliation then shows any difference.
          </Confirm>
        </div>
      )}
    </div>
  );
}

/** Returns the meter that sets the unit of a reason's number, or "" for a code in `amounts`: its number is money. */
function meterOf({ code, meter_slug = "" }: Schema<"HoldReason">, ...amounts: Schema<"HoldReason">["code"][]): string {
  return amounts.includes(code) ? "" : meter_slug;
}

function NoHolds({ filtered }: { filtered: boolean }) {
  if (filtered) return <Empty title="No invoice is in this state">{null}</Empty>;
  return (
    <Empty title="No invoice is held">
      <p>If the tenant's setting Hold invoices is on, each draft invoice waits here until it is compared with the reported usage. An invoice that differs needs a decision.</p>
    </Empty>
  );
}
