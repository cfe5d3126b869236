import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { Confirm } from "../../acts/Confirm";
import { useAct } from "../../acts/useAct";
import { answer, api, type Schema } from "../../api/client";
import { conflicts, storedUnder } from "../../api/conflicts";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { Ago } from "../../values/Ago";
import { Quantity } from "../../values/Amount";
import { Identifier } from "../../values/Identifier";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { EventTabs } from "./EventTabs";

const columns = [{ title: "Idempotency key" }, { title: "State" }, { title: "Customer" }, { title: "Event type" }, { title: "Properties" }, { title: "Value", number: true }, { title: "Sent", number: true }];

/** Lists the accepted events that are not counted. A button below each finds the stored event with the same key. */
export function Conflicts() {
  return (
    <>
      <Head title="Events">Events that reuse the idempotency key of another event. They are accepted but not counted. Send such an event again with a new key, or dismiss it.</Head>
      <EventTabs />
      <Allowed to="events:read">
        <ConflictTable />
      </Allowed>
    </>
  );
}

/** Lists the event conflicts. */
function ConflictTable() {
  const { page } = useSearch({ from: "/frame/events/conflicts" });
  return (
    <List what="The event conflicts" columns={columns} query={useQuery(conflicts(page))} page={page} empty={<None />} rows={4}>
      {(conflict) => <Pair key={conflict.id} conflict={conflict} />}
    </List>
  );
}

/** Shows the event that reused a key and, when the user asks for it, the stored event with that key. */
function Pair({ conflict }: { conflict: Schema<"EventConflict"> }) {
  const key = conflict.idempotency_key ?? "";
  const [searched, setSearched] = useState(false);
  const { data: stored, error, refetch } = useQuery({ ...storedUnder(key), enabled: searched });
  const dismiss = useAct((reason: string) => answer(api.POST("/v1/events/conflicts/{id}/dismiss", { params: { path: { id: conflict.id } }, body: { reason } })), {
    changes: [["conflicts"], ["attention"]],
  });
  return (
    <>
      <tr>
        <td className={cell.main}>
          <Identifier>{key}</Identifier>
        </td>
        <td>
          Not counted{" "}
          <Confirm verb="Dismiss" thing={key} needs="billing:write" act={dismiss} asks="Reason, for the audit log">
            The event is removed from this list, and its usage is not counted. To count it, first send it again with a new key.
          </Confirm>
        </td>
        <Content event={conflict} />
        <td className={cell.number}>
          <Ago at={conflict.received_at} />
        </td>
      </tr>
      <tr>
        <td />
        <td className="muted">Counted</td>
        {stored ? (
          <>
            <Content event={stored} />
            <td className={cell.number}>
              <Ago at={stored.ingested_at} />
            </td>
          </>
        ) : (
          <td colSpan={columns.length - 2}>
            {error ? (
              <Failed what="The event that was stored" error={error} retry={() => void refetch()} />
            ) : stored === null ? (
              "The event is no longer stored."
            ) : (
              <Button variant="default" size="compact-sm" loading={searched} aria-label={`Find it: the event that was stored under ${key}`} onClick={() => setSearched(true)}>
                Find it
              </Button>
            )}
          </td>
        )}
      </tr>
    </>
  );
}

/** Shows the fields of an event. */
function Content({ event }: { event: Schema<"ExportedEvent"> }) {
  return (
    <>
      <td>{event.customer_id}</td>
      <td>{event.event_type}</td>
      <td className="mono small">{JSON.stringify(event.properties)}</td>
      <td className={cell.number} data-title="value">
        <Quantity value={event.value} />
      </td>
    </>
  );
}

function None() {
  return (
    <Empty title="No event reuses a key">
      <p>An event whose idempotency key belongs to another customer&apos;s event, or to one with other content, is listed here with what was sent.</p>
    </Empty>
  );
}
