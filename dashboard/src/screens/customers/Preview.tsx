import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { answer, api, type Schema } from "../../api/client";
import { useSession } from "../../api/session";
import { Opener } from "../../frame/Opener";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingRows } from "../../states/Loading";
import { Amount } from "../../values/Amount";
import { decimals, minorDigits } from "../../values/decimal";
import { range } from "../../values/instants";
import { Reason } from "../../values/Reason";
import { cell, Table } from "../../values/Table";
import { Usage } from "../../values/Usage";
import styles from "./CustomerBill.module.css";
import { PriceSource } from "./PriceSource";
import { totals } from "./totals";
import { CurrentBreakdown } from "./Working";

const columns = [{ title: "Meter" }, { title: "Usage", number: true }, { title: "Rate", number: true }, { title: "Amount", number: true }];

/** Shows the charges of the current billing period so far. */
export function Preview({ customer }: { customer: string }) {
  const { meter } = useSearch({ from: "/frame/customers/$customer/bill" });
  const { data, error, refetch } = useQuery({
    queryKey: ["preview", customer],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/preview", { params: { query: { customer } }, signal })),
  });
  if (error) return <Failed what="The bill" error={error} retry={() => void refetch()} />;
  if (data?.length === 0) {
    return (
      <Empty title="Nothing is billed yet">
        <p>Each meter gets a line here with its usage and its charge.</p>
      </Empty>
    );
  }
  return (
    <Table caption="Charges of this period so far" columns={columns} busy={!data}>
      {data ? (
        <>
          <tbody>
            {data.map((line, index) => (
              <Line key={index} customer={customer} line={line} open={meter === line.meter_slug && !line.late_for} />
            ))}
          </tbody>
          <tfoot>
            {totals(data).map(({ currency, amount }) => (
              <tr key={currency}>
                <td colSpan={3}>
                  Total so far
                  {decimals(amount) > minorDigits(currency) && ", before lines are rounded"}
                  {data.some(({ excluded }) => excluded) && ", without unreported usage"}
                </td>
                <td className={cell.number}>
                  <Amount value={amount} currency={currency} />
                </td>
              </tr>
            ))}
          </tfoot>
        </>
      ) : (
        <LoadingRows columns={4} rows={3} />
      )}
    </Table>
  );
}

/** Shows a line of the preview and, if it is open, its calculation. */
function Line({ customer, line, open }: { customer: string; line: Schema<"PreviewItem">; open: boolean }) {
  const { tenant } = useSession();
  return (
    <>
      <tr>
        <td className={cell.main}>
          {line.late_for ? (
            <>
              {line.meter_slug} <span className="muted small">late, for {range(line.late_for.start, line.late_for.end, tenant.timezone)}</span>
            </>
          ) : (
            <Opener name="meter" value={line.meter_slug} open={open}>
              {line.meter_slug}
            </Opener>
          )}
          <PriceSource of={line} />
          {line.excluded && (
            <div className={styles.excluded}>
              <Reason prefix="Not reported: " of={line.excluded} />
            </div>
          )}
        </td>
        <td className={cell.number} data-title="usage">
          {line.excluded?.reason === "backfilling" ? <span className="muted">being counted</span> : <Usage meter={line.meter_slug} value={line.usage} />}
        </td>
        <td className={cell.number} data-title="rate">
          <Amount value={line.unit_price} currency={line.currency} />
        </td>
        <td className={cell.number}>
          <span className={line.excluded && styles.left}>
            <Amount value={line.amount} currency={line.currency} />
          </span>
        </td>
      </tr>
      {open && (
        <tr className={styles.opened}>
          <td colSpan={4}>
            <CurrentBreakdown customer={customer} meter={line.meter_slug} />
          </td>
        </tr>
      )}
    </>
  );
}
