import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { Refused } from "../../acts/Refused";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { answer, api, type Schema } from "../../api/client";
import { Filter } from "../../frame/Filter";
import { Head } from "../../frame/Head";
import { Opener } from "../../frame/Opener";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Ago } from "../../values/Ago";
import { Identifier } from "../../values/Identifier";
import { Instant } from "../../values/Instant";
import { List } from "../../values/List";
import { State, type Meaning } from "../../values/State";
import { cell } from "../../values/Table";
import styles from "./Webhook.module.css";

const columns = [{ title: "Message" }, { title: "State" }, { title: "Attempts", number: true }, { title: "Next attempt" }, { title: "Time", number: true }];

type Status = Schema<"Delivery">["status"];
const meanings: Record<Status, Meaning> = { pending: "waiting", delivered: "good", failed: "bad" };

const states = [
  ["", "All states"],
  ["pending", "pending"],
  ["delivered", "delivered"],
  ["failed", "failed"],
] as const;

const soon = 2_000; // milliseconds

/** Lists the messages of a webhook: those of the last 30 days, including pending ones. */
export function Deliveries({ webhook }: { webhook: string }) {
  const { status, message: opened, page } = useSearch({ from: "/frame/developers/webhooks/$webhook" });
  const query = useQuery({
    queryKey: ["deliveries", webhook, { status, page }],
    queryFn: ({ signal }) => {
      const query = { page_size: 25, ...(status && { status: status as Status }), ...(page && { page_token: page }) };
      return answer(api.GET("/v1/webhooks/{id}/deliveries", { params: { path: { id: webhook }, query }, signal }));
    },
    placeholderData: keepPreviousData,
    // Poll while a listed delivery is pending.
    refetchInterval: ({ state }) => (state.data?.data.some((delivery) => delivery.status === "pending") ? soon : false),
  });
  return (
    <>
      <Head part title="Deliveries" action={<Filter name="status" label="State of the deliveries" options={states} />} />
      <List what="The deliveries" columns={columns} query={query} page={page} rows={4} empty={<None status={status} />}>
        {(delivery) => <Row key={delivery.id} webhook={webhook} delivery={delivery} opened={delivery.id === opened} />}
      </List>
    </>
  );
}

function None({ status }: { status: string | undefined }) {
  return (
    <Empty title={status ? `No delivery is ${status}` : "No messages yet"}>
      <p className="muted">The messages of the last 30 days are listed here.</p>
    </Empty>
  );
}

interface Props {
  webhook: string;
  delivery: Schema<"Delivery">;
}

/** Shows a message and, if it is opened, its details. */
function Row({ webhook, delivery, opened }: Props & { opened: boolean }) {
  return (
    <>
      <tr>
        <td className={cell.main}>
          <Opener name="message" value={delivery.id} open={opened}>
            {delivery.event_type}
          </Opener>
        </td>
        <td>
          <State is={meanings[delivery.status]}>{delivery.status}</State>
        </td>
        <td className={cell.number} data-title="Attempts">
          {delivery.attempts}
        </td>
        <td data-title="Next attempt">{delivery.next_attempt_at ? <Ago at={delivery.next_attempt_at} /> : <span className="muted">none</span>}</td>
        <td className={cell.number}>
          <Ago at={delivery.created_at} />
        </td>
      </tr>
      {opened && (
        <tr>
          <td colSpan={columns.length} className={cell.whole}>
            <Message webhook={webhook} delivery={delivery} />
          </td>
        </tr>
      )}
    </>
  );
}

/** Shows the body of a message and the result of each delivery attempt. */
function Message({ webhook, delivery }: Props) {
  const path = { id: webhook, message: delivery.id };
  const { data, error, refetch } = useQuery({
    // Each new attempt or state changes the response.
    queryKey: ["deliveries", webhook, delivery.id, delivery.status, delivery.attempts],
    queryFn: ({ signal }) => answer(api.GET("/v1/webhooks/{id}/deliveries/{message}", { params: { path }, signal })),
    placeholderData: keepPreviousData,
  });
  const redeliver = useAct(() => answer(api.POST("/v1/webhooks/{id}/deliveries/{message}/redeliver", { params: { path } })), {
    changes: [["deliveries", webhook]],
  });
  if (error) return <Failed what="The message" error={error} retry={() => void refetch()} />;
  return (
    <div className={styles.message}>
      <p>
        <Identifier>{delivery.id}</Identifier>
      </p>
      {data ? (
        <>
          <Attempts made={data.attempts_made} status={delivery.status} />
          <pre className="mono" tabIndex={0} role="group" aria-label="The body of the message">
            {data.body}
          </pre>
        </>
      ) : (
        <LoadingText />
      )}
      <div>
        <Verb needs="webhooks:write" size="xs" loading={redeliver.isPending} onClick={() => redeliver.mutate()}>
          Redeliver
        </Verb>
      </div>
      <Refused error={redeliver.error} />
    </div>
  );
}

/** Lists the attempts to deliver the message. */
function Attempts({ made, status }: { made: Schema<"Attempt">[]; status: Status }) {
  if (made.length === 0) return <p className="muted">{status === "pending" ? "The message was not sent yet." : "The delivery was canceled before the message was sent."}</p>;
  return (
    <ol className={styles.attempts} aria-label="Attempts">
      {made.map(({ at, status, problem, took_ms }) => (
        <li key={at}>
          <Instant at={at} />: {status === 0 ? "no answer" : `answered ${status}`} after {took_ms} ms
          {problem && <span className="muted"> · {problem}</span>}
        </li>
      ))}
    </ol>
  );
}
