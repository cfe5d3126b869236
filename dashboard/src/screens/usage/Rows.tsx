import type { UseQueryResult } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import type { BreakdownQuery, BreakdownRow } from "../../api/breakdown";
import type { Schema } from "../../api/client";
import { useSession } from "../../api/session";
import { isOther, valueText } from "../../values/groups";
import { written } from "../../values/instants";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { Usage } from "../../values/Usage";
import type { Dimension } from "./dimensions";

interface Props {
  query: BreakdownQuery;
  dimensions: Dimension[];
  read: UseQueryResult<Schema<"BreakdownResult">>;
  page: string | undefined;
}

/** Shows a page of a breakdown: a row for each combination of dimension values and window. */
export function Rows({ query: { meter, granularity }, dimensions, read, page }: Props) {
  const { tenant } = useSession();
  const keys = [...dimensions.map(({ title }) => ({ title })), ...(granularity ? [{ title: "When" }] : [])];
  const columns = [...(keys.length > 0 ? keys : [{ title: "Customers" }]), { title: "Usage", number: true }];
  return (
    <List what={`The usage of ${meter}`} columns={columns} query={read} page={page} empty={<p className="muted">No usage in this time range.</p>}>
      {(row) => (
        <tr key={JSON.stringify([row.customer, row.plan, row.group_key, row.window_start, row.other])}>
          {row.other ? (
            <td colSpan={columns.length - 1} className="muted">
              All others
            </td>
          ) : (
            <>
              {keys.length === 0 && <td className={cell.main}>All customers</td>}
              {dimensions.map((dimension, index) => (
                <td key={dimension.sent} className={index === 0 ? cell.main : undefined} data-title={dimension.property}>
                  <Value of={row} dimension={dimension} meter={meter} />
                </td>
              ))}
              {granularity && <td className="number">{row.window_start && written(row.window_start, tenant.timezone, named[granularity])}</td>}
            </>
          )}
          <td className={cell.number}>
            <Usage meter={meter} value={row.value} />
          </td>
        </tr>
      )}
    </List>
  );
}

/** The precision with which a window is named by its start. */
const named = { hour: "minute", day: "date", week: "date", month: "month" } as const;

/** Shows the value of a dimension in a row. */
function Value({ of, dimension: { sent, property }, meter }: { of: BreakdownRow; dimension: Dimension; meter: string }) {
  if (property !== undefined) return <PropertyValue of={of.group_key ?? {}} property={property} />;
  if (sent === "plan") return of.plan ? <>{of.plan}</> : <span className="muted">no plan</span>;
  return <CustomerLink id={of.customer ?? ""} meter={meter} />;
}

/** Shows the value of a property in a row. */
function PropertyValue({ of, property }: { of: { [property: string]: unknown }; property: string }) {
  if (isOther(of)) return <span className="muted" title="The meter has too many groups, or the values are too long, to store the values of this usage.">unknown</span>;
  const value = of[property];
  return value === null || value === undefined ? <span className="muted">none</span> : <>{valueText(value)}</>;
}

/** Links to the customer's usage of the meter in the same range. */
function CustomerLink({ id, meter }: { id: string; meter: string }) {
  const { permissions } = useSession();
  const { range, from, to } = useSearch({ from: "/frame/usage" });
  if (!permissions.includes("customers:read")) return <>{id}</>;
  return (
    <Link to="/customers/-/by-external-id" search={{ id, meter, ...(range && { range }), ...(from && { from }), ...(to && { to }) }} preload={false}>
      {id}
    </Link>
  );
}
