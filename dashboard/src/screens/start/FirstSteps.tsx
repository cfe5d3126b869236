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

/** Lists the first steps of a tenant in order, and whether each is done. */
export function FirstSteps() {
  const { reading, key, event, meter, price, provider } = useSteps();
  const [made, setMade] = useState<string>();
  if (reading) return <LoadingText />;
  return (
    <ol className={styles.steps} aria-label="First steps">
      <Step title="Create a key" done={key}>
        <MakeKey made={made} done={setMade} />
      </Step>
      <Step title="Send an event" done={event === undefined ? undefined : event !== null}>
        {event ? (
          <p>
            The newest event has the type <span className="mono">{event.event_type}</span>, from <Ago at={event.timestamp} />.
          </p>
        ) : (
          <>
            <p>This command sends an event. The event appears here as soon as it arrives.</p>
            <FirstEvent customer="acme" apiKey={made} />
          </>
        )}
      </Step>
      <Step title="Create a meter" done={meter}>
        <p>
          A meter adds up the events of one type, including earlier events. <Link to="/meters">Meters</Link>
        </p>
      </Step>
      <Step title="Set its price" done={price}>
        <p>
          The price charges the meter's usage, including that of running billing periods. <Link to="/meters">Meters</Link>
        </p>
      </Step>
      <Step title="Connect a provider" done={provider}>
        <p>
          Odometer reports the usage to be billed to Stripe or to your own URL. <Link to="/billing/provider">Provider</Link>
        </p>
      </Step>
    </ol>
  );
}

/** Shows a step. done is undefined if the state of the step is unknown, for example without a permission to read it. */
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

/** Shows the button that creates an API key, or the created key. */
function MakeKey({ made, done }: { made: string | undefined; done: (key: string) => void }) {
  const make = useAct(() => answer(api.POST("/v1/api-keys", { body: { name: "first steps", scope: "ingest_only" } })), {
    changes: [["api-keys"], ["audit-log"]],
    done: ({ key }) => done(key),
  });
  if (made !== undefined) {
    return (
      <>
        <p>This key can only send events. It is shown only once: store it in your secret store.</p>
        <Once secret={made} />
      </>
    );
  }
  return (
    <>
      <p>Programs send an API key with each request. The key created here can only send events.</p>
      <Verb needs="api_keys:manage" loading={make.isPending} onClick={() => make.mutate()}>
        Create a key
      </Verb>
      <Refused error={make.error} />
    </>
  );
}
