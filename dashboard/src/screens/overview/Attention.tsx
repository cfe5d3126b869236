import { Button } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { attention, retryFailed, type AttentionItem } from "../../api/attention";
import { errorText, inWords } from "../../api/words";
import { Failed } from "../../states/Failed";
import { LoadingRows } from "../../states/Loading";
import { Ago } from "../../values/Ago";
import { Amount } from "../../values/Amount";
import { State } from "../../values/State";
import { cell, Table } from "../../values/Table";
import { grouped, kinds, type Group } from "./attention";
import styles from "./Overview.module.css";

const columns = [{ title: "Item" }, { title: "State" }, { title: "Amount", number: true }, { title: "Since", number: true }];

/** Lists the items that an operator must act on or that are stuck, by cause. The most urgent kinds are first. */
export function Attention() {
  const { data, error, refetch, hasNextPage, isFetchingNextPage, fetchNextPage } = useInfiniteQuery(attention);
  const [newest] = data?.pages ?? [];
  const items = data?.pages.flatMap(({ data }) => data) ?? [];
  if (error && !data) return <Failed what="The list of items that need attention" error={error} retry={() => void refetch()} />;
  if (newest?.total_items === 0) return <p className="muted">Nothing needs attention.</p>;
  return (
    <>
      <Table caption="Needs attention" columns={columns} busy={!data}>
        {newest ? (
          grouped(items, newest.causes).map((group) => <Cause key={group.kind + group.cause} of={group} />)
        ) : (
          <LoadingRows columns={columns.length} rows={2} />
        )}
      </Table>
      {hasNextPage && (
        <p>
          <Button variant="default" size="xs" loading={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            Show more
          </Button>{" "}
          <span className="muted small">
            {items.length} of {newest?.total_items}
          </span>
        </p>
      )}
    </>
  );
}

/** Shows the items with the same cause, under one heading. */
function Cause({ of }: { of: Group }) {
  const { kind, cause, count, items } = of;
  const { title } = kinds[kind];
  const [{ action }] = items as [AttentionItem, ...AttentionItem[]];
  return (
    <tbody>
      <tr>
        <th colSpan={columns.length} scope="rowgroup" className={styles.cause}>
          <div>
            <span>
              <b>
                {title}: {inWords(cause)}
              </b>
              {count > 1 && <span className="muted number"> {count}</span>}
              <span className={`muted small ${styles.action}`}>{inWords(action)}</span>
            </span>
            {kind === "sync_failed" && <SyncAll cause={cause} count={count} />}
          </div>
        </th>
      </tr>
      {items.map((item) => (
        <Row key={item.id} item={item} />
      ))}
    </tbody>
  );
}

/** Shows an item, with a link to the screen where it can be resolved. */
function Row({ item }: { item: AttentionItem }) {
  const { title, means, link } = kinds[item.kind];
  const customer = item.customer && (item.customer.name || item.customer.external_id);
  return (
    <tr>
      <td className={cell.main}>
        <Link {...link(item)}>{customer ?? (item.reference || title)}</Link>
        {customer && item.reference && <span className="muted"> {item.reference}</span>}
        {item.customer?.name && !item.reference && <span className="muted"> {item.customer.external_id}</span>}
      </td>
      <td>
        <State is={item.syncing ? "waiting" : means}>{item.syncing ? "syncing" : "open"}</State>
        {item.until && (
          <span className="muted small">
            {" "}
            deadline <Ago at={item.until} />
          </span>
        )}
      </td>
      <td className={cell.number}>
        {item.amounts.map(({ amount, currency }) => (
          <div key={currency}>
            <Amount value={amount} currency={currency} />
          </div>
        ))}
      </td>
      <td className={cell.number}>
        <Ago at={item.since} />
      </td>
    </tr>
  );
}

/** Requests a sync of all customers with this failure cause, at most 10,000, including those that are not shown. */
function SyncAll({ cause, count }: { cause: string; count: number }) {
  const act = useAct(() => retryFailed(cause), { changes: [["attention"]] });
  return (
    <span className={styles.again} role="status">
      {act.error && <span className="small">{errorText(act.error)} </span>}
      {act.data && (
        <span className="muted small">
          {act.data.customers} requested{act.data.remaining_customers > 0 && `, ${act.data.remaining_customers} left`}{" "}
        </span>
      )}
      <Verb needs="billing:write" size="xs" loading={act.isPending} onClick={() => act.mutate()}>
        {count === 1 ? "Sync again" : `Sync all ${count} again`}
      </Verb>
    </span>
  );
}
