import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { answer, api } from "../../api/client";
import type { SyncRun } from "../../api/syncs";
import { useSession } from "../../api/session";
import { Failed } from "../../states/Failed";
import { LoadingRows } from "../../states/Loading";
import { Ago } from "../../values/Ago";
import { State } from "../../values/State";
import { cell, Table } from "../../values/Table";
import { newestOfEach, urgent, type Need } from "./needs";

const columns = [{ title: "What" }, { title: "Who" }, { title: "State" }, { title: "Since", number: true }];

/** How many customers are asked about one by one. */
const askedAbout = 10;

/** Of the customers with a failed sync, the newest of each, unless a later sync has done its work. */
async function stillFailed(syncs: SyncRun[], signal: AbortSignal): Promise<SyncRun[]> {
  const newest = await Promise.all(
    newestOfEach(syncs)
      .slice(0, askedAbout)
      .map(({ external_id: customer }) => answer(api.GET("/v1/billing/syncs", { params: { query: { customer, page_size: 1 } }, signal }))),
  );
  return newest.flatMap(({ data }) => data).filter(({ status }) => status === "failed");
}

/** What goes on only when somebody does something, the most urgent first. */
export function Needs() {
  const { permissions } = useSession();
  const { data, error, refetch } = useQuery({
    queryKey: ["needs"],
    async queryFn({ signal }): Promise<Need[]> {
      const query = { page_size: 20 };
      const [holds, syncs, lines, audits, webhooks] = await Promise.all([
        answer(api.GET("/v1/billing/holds", { params: { query: { ...query, state: "disagrees" } }, signal })),
        answer(api.GET("/v1/billing/syncs", { params: { query: { ...query, status: "failed" } }, signal })),
        answer(api.GET("/v1/billing/reconciliation", { params: { query: { ...query, state: "disputed" } }, signal })),
        answer(api.GET("/v1/billing/discrepancies", { signal })),
        permissions.includes("webhooks:read") ? answer(api.GET("/v1/webhooks", { signal })) : null,
      ]);
      return urgent({ holds: holds.data, syncs: await stillFailed(syncs.data, signal), lines: lines.data, audits: audits.data, webhooks: webhooks?.data ?? [] });
    },
    refetchInterval: 30_000,
  });
  if (error) return <Failed what="What needs somebody" error={error} retry={() => void refetch()} />;
  if (data?.length === 0) return <p className="muted">Nothing does.</p>;
  return (
    <Table caption="What needs somebody" columns={columns} busy={!data}>
      {data ? (
        <tbody>
          {data.map((need) => (
            <tr key={need.id}>
              <td className={cell.main}>
                <Link {...need.link}>{need.what}</Link>
              </td>
              <td>{need.who}</td>
              <td>
                <State is="bad">{need.state}</State>
              </td>
              <td className={cell.number}>{need.since && <Ago at={need.since} />}</td>
            </tr>
          ))}
        </tbody>
      ) : (
        <LoadingRows columns={columns.length} rows={2} />
      )}
    </Table>
  );
}
