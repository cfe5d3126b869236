import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import type { Schema } from "../../api/client";
import { statement, type Statement } from "../../api/periods";
import { useSession } from "../../api/session";
import { Opener } from "../../frame/Opener";
import { Failed } from "../../states/Failed";
import { LoadingRows } from "../../states/Loading";
import { Amount } from "../../values/Amount";
import { range } from "../../values/instants";
import { cell, Table } from "../../values/Table";
import { Usage } from "../../values/Usage";
import styles from "./CustomerBill.module.css";
import { PriceSource } from "./PriceSource";
import { ChargeBreakdown } from "./Working";

const columns = [{ title: "Meter" }, { title: "Usage", number: true }, { title: "Late usage", number: true }, { title: "Amount", number: true }];

/** Shows the charges of a period from its statement. Each line opens to its breakdown. */
export function StatementLines({ period }: { period: string }) {
  const { meter } = useSearch({ from: "/frame/customers/$customer/bill" });
  const { data, error, refetch } = useQuery(statement(period));
  if (error) return <Failed what="The statement" error={error} retry={() => void refetch()} />;
  return <Lines of={data} opened={(line) => (line.meter_slug === meter ? "open" : "shut")} />;
}

interface Props {
  of: Statement | undefined;
  /** The state of a line's breakdown. With "always", the breakdown is open and cannot be closed. */
  opened: (line: Schema<"StatementLine">) => "open" | "shut" | "always";
}

/** Shows the lines, adjustments and totals of a statement. */
export function Lines({ of, opened }: Props) {
  return (
    <Table caption="Charges of the period" columns={columns} busy={!of}>
      {of ? (
        <>
          <tbody>
            {of.lines.map((line) => (
              <Line key={line.meter_id} line={line} opened={opened(line)} />
            ))}
            {of.adjustments.map((closed) => (
              <Adjustments key={closed.period.start} of={closed} />
            ))}
          </tbody>
          <tfoot>
            {of.totals.map(({ currency, amount, adjustments }) => (
              <tr key={currency}>
                <td colSpan={3}>
                  Total
                  {adjustments !== "0" && (
                    <span className="muted">
                      {" "}
                      including adjustments of <Amount value={adjustments} currency={currency} />
                    </span>
                  )}
                </td>
                <td className={cell.number}>
                  <Amount value={amount} currency={currency} />
                </td>
              </tr>
            ))}
          </tfoot>
        </>
      ) : (
        <LoadingRows columns={columns.length} rows={3} />
      )}
    </Table>
  );
}

/** Shows a line of the statement and, if it is open, its calculation. */
function Line({ line, opened }: { line: Schema<"StatementLine">; opened: "open" | "shut" | "always" }) {
  return (
    <>
      <tr>
        <td className={cell.main}>
          {opened === "always" ? (
            line.meter_slug
          ) : (
            <Opener name="meter" value={line.meter_slug} open={opened === "open"}>
              {line.meter_slug}
            </Opener>
          )}
          <PriceSource of={line} />
        </td>
        <td className={cell.number} data-title="usage">
          <Usage meter={line.meter_slug} value={line.usage} />
        </td>
        <td className={cell.number} data-title="late">
          <Usage meter={line.meter_slug} value={line.late_usage} />
        </td>
        <td className={cell.number}>
          <Amount value={line.amount} currency={line.currency} />
        </td>
      </tr>
      {opened !== "shut" && (
        <tr className={styles.opened}>
          <td colSpan={columns.length}>
            <ChargeBreakdown meter={line.meter_slug} steps={line.steps} />
            {line.late_usage !== "0" && line.late_steps.length > 0 && (
              <>
                <p className={`muted small ${styles.later}`}>Usage that arrived after the period closed, and its additional charge. With the late policy adjust, a later period bills it if this period was billed</p>
                <ChargeBreakdown meter={line.meter_slug} steps={line.late_steps} />
              </>
            )}
          </td>
        </tr>
      )}
    </>
  );
}

/** Shows the adjustments that a statement bills for one closed period. */
function Adjustments({ of: { period, lines } }: { of: Schema<"ClosedPeriod"> }) {
  const { tenant } = useSession();
  return (
    <>
      {lines.map((line, index) => (
        <tr key={index}>
          <td className={cell.main}>
            {line.meter_slug}{" "}
            <span className="muted small">
              {line.reason}, of {range(period.start, period.end, tenant.timezone)}
            </span>
          </td>
          <td className={cell.number} data-title="units">
            <Usage meter={line.meter_slug} value={line.quantity} />
          </td>
          <td />
          <td className={cell.number}>
            <Amount value={line.amount} currency={line.currency} />
          </td>
        </tr>
      ))}
    </>
  );
}
