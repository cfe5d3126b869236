import { Link } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";
import { Refused } from "../../acts/Refused";
import { Once } from "../../acts/Secret";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { answer, api } from "../../api/client";
import { FirstEvent } from "../../states/FirstEvent";
import { LoadingText } from "../../states/Loading";
import { Ago } from "../../values/Ago";
import { State } from "../../values/State";
import styles from "./FirstSteps.module.css";
import { useSteps } from "./steps";

/** What there is to do first, in its order. */
export function FirstSteps() {
  const { reading, key, event, meter, price, provider } = useSteps();
  const [made, setMade] = useState<string>();
  if (reading) return <LoadingText />;
  return (
    <ol className={styles.steps} aria-label="First steps">
      <Step title="Make a key" done={key}>
        <MakeKey made={made} done={setMade} />
      </Step>
      <Step title="Send an event" done={event === undefined ? undefined : event !== null}>
        {event ? (
          <p>
            The newest is of the type <span className="mono">{event.event_type}</span>, from <Ago at={event.timestamp} />.
          </p>
        ) : (
          <>
            <p>This line sends one. It is watched for here, and shown as soon as it has arrived.</p>
            <FirstEvent customer="acme" apiKey={made} />
          </>
        )}
      </Step>
      <Step title="Make a meter" done={meter}>
        <p>
          A meter adds up the events of one type, those that came before it too. <Link to="/meters">Meters</Link>
        </p>
      </Step>
      <Step title="Set its price" done={price}>
        <p>
          What usage comes to, from then on in every bill. <Link to="/meters">Meters</Link>
        </p>
      </Step>
      <Step title="Connect a provider" done={provider}>
        <p>
          Stripe, or an address of yours, is sent what is to be billed. <Link to="/billing/provider">Provider</Link>
        </p>
      </Step>
    </ol>
  );
}

/** done is not known where the API does not say it to everybody. */
function Step({ title, done, children }: { title: string; done: boolean | undefined; children: ReactNode }) {
  return (
    <li className={styles.step}>
      <div className={styles.title}>
        <h2>{title}</h2>
        {done !== undefined && <State is={done ? "good" : "off"}>{done ? "done" : "to do"}</State>}
      </div>
      {children}
    </li>
  );
}

function MakeKey({ made, done }: { made: string | undefined; done: (key: string) => void }) {
  const make = useAct(() => answer(api.POST("/v1/api-keys", { body: { name: "first steps", scope: "ingest_only" } })), {
    changes: [["api-keys"], ["audit-log"]],
    done: ({ key }) => done(key),
  });
  if (made !== undefined) {
    return (
      <>
        <p>It can send events and nothing else. It is shown only once: keep it in your secret store.</p>
        <Once secret={made} />
      </>
    );
  }
  return (
    <>
      <p>A program sends it with each request. The one that is made here can send events and nothing else.</p>
      <Verb needs="api_keys:manage" loading={make.isPending} onClick={() => make.mutate()}>
        Make a key
      </Verb>
      <Refused error={make.error} />
    </>
  );
}
