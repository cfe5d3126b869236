import { useQuery } from "@tanstack/react-query";
import { answer, api, type Schema } from "../../api/client";
import { useSession } from "../../api/session";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Failed } from "../../states/Failed";
import { LoadingRows } from "../../states/Loading";
import { Amount } from "../../values/Amount";
import { cell, Table } from "../../values/Table";
import { FirstSteps } from "../start/FirstSteps";
import { Attention } from "./Attention";
import { DailyUsage } from "./DailyUsage";
import { EventCounts } from "./EventCounts";
import styles from "./Overview.module.css";

/** Shows the revenue by month, the items that need attention, the usage and the events. */
export function Overview() {
  const { permissions } = useSession();
  return (
    <>
      <Head title="Overview" />
      {permissions.includes("customers:read") && <Beginning />}
      <Allowed to="billing:read">
        <Revenue />
      </Allowed>
      {permissions.includes("billing:read") && (
        <>
          <h2 className={styles.section}>Needs attention</h2>
          <Attention />
        </>
      )}
      {permissions.includes("usage:read") && <DailyUsage />}
      {permissions.includes("events:read") && <EventCounts />}
    </>
  );
}

/** Shows the first steps until the tenant has a customer. Archived customers do not count. */
function Beginning() {
  const { data: begun, isLoading } = useQuery({
    queryKey: ["customers", "first"],
    queryFn: async ({ signal }) => (await answer(api.GET("/v1/customers", { params: { query: { page_size: 1 } }, signal }))).data.length > 0,
  });
  if (isLoading) return <span hidden data-loading />; // while the screen arrives, the frame hides the content below
  if (begun !== false) return null;
  return (
    <section aria-label="First steps">
      <p className="muted">There is no usage yet. These steps lead to the first bill.</p>
      <FirstSteps />
    </section>
  );
}

const columns = [
  { title: "Month" },
  { title: "Customers", number: true },
  { title: "Estimated", number: true },
  { title: "Billed", number: true },
  { title: "Not billed", number: true },
];

/** Shows the revenue of the last three months. */
function Revenue() {
  const { data, error, refetch } = useQuery({
    queryKey: ["revenue"],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/revenue", { params: { query: { months: 3 } }, signal })),
    staleTime: 60_000,
  });
  if (error) return <Failed what="The revenue" error={error} retry={() => void refetch()} />;
  if (data?.data.length === 0) return <p className="muted">No price applies to the billing period of a customer yet. Usage without a price is counted and not charged.</p>;
  return (
    <section aria-label="Revenue">
      <Table caption="Revenue by month and currency" columns={columns} busy={!data}>
        {data ? (
          <tbody>
            {data.data.map((month) => (
              <Month key={month.month + month.currency} of={month} />
            ))}
          </tbody>
        ) : (
          <LoadingRows columns={columns.length} rows={3} />
        )}
      </Table>
      <p className={`muted small ${styles.caveat}`}>{data?.caveat}</p>
    </section>
  );
}

const monthForm = new Intl.DateTimeFormat("en-GB", { month: "long", year: "numeric", timeZone: "UTC" });

/** Shows the revenue of a month in one currency. */
function Month({ of }: { of: Schema<"MonthlyRevenue"> }) {
  return (
    <tr>
      <td className={cell.main}>{monthForm.format(new Date(`${of.month}-01T00:00:00Z`))}</td>
      <td className={cell.number} data-title="customers">
        {of.customers}
      </td>
      <td className={cell.number} data-title="estimated">
        <Amount value={of.estimated} currency={of.currency} />
      </td>
      <td className={cell.number} data-title="billed">
        <Amount value={of.billed} currency={of.currency} />
      </td>
      <td className={cell.number} data-title="not billed">
        <Amount value={of.unbilled} currency={of.currency} />
      </td>
    </tr>
  );
}
