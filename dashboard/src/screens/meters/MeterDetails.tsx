import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useRef } from "react";
import { Form } from "../../acts/Form";
import { typedLoss, useLoss } from "../../acts/unsaved";
import { useEdits } from "../../acts/useEdits";
import type { Schema } from "../../api/client";
import { meter as read, previewMeterChange, updateMeter } from "../../api/meters";
import { Identifier } from "../../values/Identifier";
import { Instant } from "../../values/Instant";
import { condition, counting } from "./counting";
import { changedFields, definitionOf, typedOf } from "./definition";
import styles from "./MeterDetails.module.css";
import { MeterFields } from "./MeterFields";
import { TryOut, useTryOut } from "./TryOut";

/** Shows the definition of a meter, and the form that changes it. */
export function MeterDetails() {
  const params = useParams({ from: "/frame/meters/$meter/details" });
  const { data } = useQuery(read(params.meter));
  if (!data) return null;
  return <Edit key={data.id} meter={data} />;
}

/** Shows the ids and the saved definition of a meter. */
function Facts({ meter }: { meter: Schema<"Meter"> }) {
  return (
    <dl className={styles.facts}>
      <dt>ID</dt>
      <dd>
        <Identifier>{meter.id}</Identifier>
      </dd>
      <dt>Slug</dt>
      <dd>
        <Identifier>{meter.slug}</Identifier>
      </dd>
      <dt>Event type</dt>
      <dd>
        <Identifier>{meter.event_type}</Identifier>
      </dd>
      <dt>Value</dt>
      <dd>{meter.value_property ? <Identifier>{meter.value_property}</Identifier> : "value of the event"}</dd>
      {meter.unit && (
        <>
          <dt>Unit</dt>
          <dd>{meter.unit}</dd>
        </>
      )}
      {meter.filters.length > 0 && (
        <>
          <dt>Filters</dt>
          {meter.filters.map((filter, index) => (
            <dd key={index}>{condition(filter)}</dd>
          ))}
        </>
      )}
      <dt>Created</dt>
      <dd>
        <Instant at={meter.created_at} />
      </dd>
      {meter.archived_at && (
        <>
          <dt>Archived</dt>
          <dd>
            <Instant at={meter.archived_at} />
          </dd>
        </>
      )}
      {meter.counted_from && (
        <>
          <dt>Counts from</dt>
          <dd>
            <Instant at={meter.counted_from} />. Earlier events were no longer stored.
          </dd>
        </>
      )}
    </dl>
  );
}

/** Shows the form of a meter, and the effect of the typed definition on the latest events. */
function Edit({ meter }: { meter: Schema<"Meter"> }) {
  const { typed, change, save } = useEdits(typedOf(meter), (typed, confirm) => updateMeter(meter.slug, { ...changedFields(meter, typed), ...(confirm && { confirm }) }), {
    changes: [["meters"], ["meter", meter.slug]],
    done: () => attempt.reset(),
  });
  const body = changedFields(meter, typed);
  const definition = definitionOf(typed);
  const counts = Object.keys(definition).some((field) => field in body);
  const attempt = useTryOut(definition, (definition) => previewMeterChange(meter.slug, definition));
  const changed = Object.keys(body).length > 0;
  const screen = useRef<HTMLDivElement>(null);
  useLoss(screen, () => (changed ? typedLoss : undefined)); // Form does not detect a removed filter
  return (
    <div ref={screen} className={styles.split}>
      <Form act={save} needs="meters:write" submit="Save the meter" not={changed ? undefined : "Nothing was changed"} onSubmit={save.mutate}>
        <MeterFields typed={typed} error={save.error ?? attempt.fieldError} change={change} />
        <div role="status">
          {meter.status === "backfilling" && <Backfill meter={meter} />}
          {counts && <p>All events are counted again: {counting(definition)}. Until that is complete, usage is shown and billed as before.</p>}
          {"usage_scale" in body && <p>The reported usage of open periods changes. Events are not counted again.</p>}
        </div>
      </Form>
      <div className={styles.beside}>
        <Facts meter={meter} />
        <TryOut attempt={attempt} unit={typed.unit} begin={save.reset} />
      </div>
    </div>
  );
}

/** Shows the progress of counting earlier events. */
function Backfill({ meter }: { meter: Schema<"Meter"> }) {
  return (
    <p className={styles.waiting}>
      Earlier events are being counted in this way
      {meter.backfill && `: ${meter.backfill.counted_days} of ${meter.backfill.days} days are complete`}. {meter.current ? `Until that is complete, usage is ${counting(meter.current)}.` : "Until that is complete, the meter's usage is neither shown nor billed."}
    </p>
  );
}
