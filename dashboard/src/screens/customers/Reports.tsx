import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { Confirm } from "../../acts/Confirm";
import { useAct } from "../../acts/useAct";
import { answer, api, type Schema } from "../../api/client";
import { statement } from "../../api/periods";
import { Failed } from "../../states/Failed";
import { LoadingRows } from "../../states/Loading";
import { Instant } from "../../values/Instant";
import { Pages } from "../../values/Pages";
import { State } from "../../values/State";
import { cell, Table } from "../../values/Table";
import { Usage } from "../../values/Usage";
import { reportStates } from "../billing/states";
import styles from "./CustomerBill.module.css";

type Report = Schema<"StatementReport">;

const columns = [{ title: "Report" }, { title: "State" }, { title: "Meters" }, { title: "Sent", number: true }, { title: "Recorded", number: true }];

const kinds: Record<Report["kind"], string> = {
  statement: "statement",
  quantity: "quantity",
  charge: "charge",
  invoice_action: "invoice",
};

/** Lists the reports of a period to the provider, newest first. */
export function Reports({ period }: { period: string }) {
  const { page } = useSearch({ from: "/frame/customers/$customer/bill" });
  const { data, error, refetch } = useQuery(statement(period, page));
  if (error && !data) return <Failed what="The reports" error={error} retry={() => void refetch()} />;
  const reports = data?.reports;
  return (
    <section>
      <h2 className={styles.section}>Reports to the provider</h2>
      {reports?.data.length === 0 ? (
        <p className="muted">No usage of this period was reported yet.</p>
      ) : (
        <Table caption="Reports to the provider" columns={columns} busy={!reports}>
          {reports ? (
            <tbody>
              {reports.data.map((report) => (
                <Row key={report.report_id} report={report} />
              ))}
            </tbody>
          ) : (
            <LoadingRows columns={columns.length} rows={2} />
          )}
        </Table>
      )}
      {reports && <Pages page={page} next={reports.next_page_token} />}
    </section>
  );
}

/** Shows a report, and its state. */
function Row({ report }: { report: Report }) {
  const [means, state, says] = reportStates[report.state];
  const meters = [...new Set(report.lines.map((line) => line.meter_slug))];
  return (
    <tr>
      <td className={cell.main}>
        {report.number}
        <span className={styles.kind}>
          {" "}
          {kinds[report.kind]} to {report.provider}
        </span>
      </td>
      <td>
        <State is={means} says={says}>{state}</State>
        {report.response && <p className={`muted small ${styles.response}`}>{report.response}</p>}
        {report.state === "in_doubt" && <Resolve report={report} />}
      </td>
      <td className="muted">{meters.join(", ")}</td>
      <td className={cell.number} data-title={report.quantity_sent === undefined ? undefined : "sent"}>
        {report.quantity_sent !== undefined && <Usage meter={report.kind === "quantity" && meters.length === 1 ? meters[0]! : ""} value={report.quantity_sent} />}
      </td>
      <td className={cell.number}>
        <Instant at={report.recorded_at} />
      </td>
    </tr>
  );
}

/** Resolves a report with an unknown outcome, after an operator has checked at the provider whether it arrived. */
function Resolve({ report: { report_id: id, number } }: { report: Report }) {
  const act = (state: "accepted" | "rejected") => (reason: string) =>
    answer(api.POST("/v1/billing/reports/{id}/resolve", { params: { path: { id } }, body: { state, reason } }));
  const changes = [["statement"], ["syncs"], ["preview"]];
  const accepted = useAct(act("accepted"), { changes });
  const rejected = useAct(act("rejected"), { changes });
  const common = { needs: "billing:write", thing: `report ${number}`, asks: "Evidence, for the audit log" };
  return (
    <div className={styles.resolve}>
      <Confirm {...common} verb="Accept" act={accepted}>
        The provider has the report. It counts as billed and is not sent again.
      </Confirm>
      <Confirm {...common} verb="Reject" act={rejected} danger>
        The provider does not have the report. The next sync reports its usage again. If the provider does have it, the customer is billed twice.
      </Confirm>
    </div>
  );
}
