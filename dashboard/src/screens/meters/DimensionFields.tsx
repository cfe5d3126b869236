import { Button, NativeSelect, Textarea } from "@mantine/core";
import { useRef } from "react";
import { flushSync } from "react-dom";
import { useRule } from "../../acts/useRule";
import { brokenRule } from "../../api/client";
import { lines } from "./counting";
import { mostEntries, newEntry, type TypedDimensions, type TypedEntry } from "./dimensions";
import { parseValue, typedValue } from "./filterValues";
import styles from "./Prices.module.css";
import { RateFields } from "./RateFields";

interface Props {
  typed: TypedDimensions;
  /** The error with which the API refused the terms. */
  error: Error | null;
  change: (part: Partial<TypedDimensions>) => void;
}

/** Shows the prices by dimension in the order in which they are matched, and the price of all other usage. */
export function DimensionFields({ typed, error, change }: Props) {
  const { by, entries, isOtherCharged, other } = typed;
  const list = useRef<HTMLDivElement>(null);
  const adding = useRef<HTMLButtonElement>(null);
  const part = (index: number, selector: string) => list.current?.children[index]?.querySelector<HTMLElement>(selector);
  const add = () => {
    flushSync(() => change({ entries: [...entries, newEntry()] }));
    part(entries.length, "textarea")?.focus();
  };
  const remove = (index: number) => {
    flushSync(() => change({ entries: entries.filter((_, other) => other !== index) }));
    adding.current?.focus();
  };
  const move = (index: number, to: number) => {
    const rest = entries.filter((_, other) => other !== index);
    flushSync(() => change({ entries: [...rest.slice(0, to), entries[index]!, ...rest.slice(to)] }));
    const same = part(to, `[data-move="${to < index ? "up" : "down"}"]:enabled`);
    (same ?? part(to, "[data-move]:enabled"))?.focus(); // the first and the last price have one enabled button
  };
  return (
    <>
      <fieldset className={styles.entries} aria-describedby="entries-meaning">
        <legend>Prices by {by.join(", ")}</legend>
        <p id="entries-meaning" className="muted small">
          The first price that matches charges the usage. All usage that it matches is one quantity.
        </p>
        <div ref={list} className={styles.entries}>
          {entries.map((entry, index) => (
            <Entry
              key={entry.id}
              entry={entry}
              by={by}
              index={index}
              last={entries.length - 1}
              error={error}
              change={(part) => change({ entries: entries.map((one, other) => (other === index ? { ...one, ...part } : one)) })}
              move={(to) => move(index, to)}
              remove={() => remove(index)}
            />
          ))}
        </div>
        <div>
          <Button ref={adding} variant="default" size="xs" disabled={entries.length >= mostEntries} onClick={add}>
            {entries.length >= mostEntries ? `At most ${mostEntries} prices` : "Add a price"}
          </Button>
        </div>
      </fieldset>
      <div className={styles.entry} role="group" aria-label="All other usage">
        <NativeSelect
          label="All other usage"
          description={isOtherCharged ? "Usage whose values are unknown is not charged at this price either" : "Such usage is listed as unrated under Billing"}
          data={[
            { value: "unrated", label: "Is not charged" },
            { value: "charged", label: "Is charged at this price" },
          ]}
          value={isOtherCharged ? "charged" : "unrated"}
          onChange={(event) => change({ isOtherCharged: event.currentTarget.value === "charged" })}
        />
        {isOtherCharged && <RateFields typed={other} at="dimensions.default." error={error} change={(part) => change({ other: { ...other, ...part } })} />}
      </div>
    </>
  );
}

interface EntryProps {
  entry: TypedEntry;
  by: string[];
  index: number;
  last: number;
  error: Error | null;
  change: (part: Partial<TypedEntry>) => void;
  move: (to: number) => void;
  remove: () => void;
}

/** Edits one of the prices, and shows the buttons that move and remove it. */
function Entry({ entry, by, index, last, error, change, move, remove }: EntryProps) {
  const { match, rate } = entry;
  const name = `price ${index + 1}`;
  const at = `dimensions.prices[${index}]`;
  const isEmpty = by.every((property) => lines(match[property] ?? "").length === 0);
  const refusedValue = (property: string) => brokenRule(error, `${at}.match.${property}`);
  const refusedMatch = by.some(refusedValue) ? undefined : brokenRule(error, `${at}.match`);
  return (
    <div className={styles.entry} role="group" aria-label={`Price ${index + 1}`}>
      <div className={styles.title}>
        <span>Price {index + 1}</span>
        <Button variant="default" size="xs" data-move="up" aria-label={`Move ${name} up`} disabled={index === 0} onClick={() => move(index - 1)}>
          Up
        </Button>
        <Button variant="default" size="xs" data-move="down" aria-label={`Move ${name} down`} disabled={index === last} onClick={() => move(index + 1)}>
          Down
        </Button>
        <Button variant="default" size="xs" aria-label={`Remove ${name}`} disabled={last === 0} onClick={remove}>
          Remove
        </Button>
      </div>
      {by.map((property, number) => (
        <Values
          key={property}
          property={property}
          isOptional={by.length > 1}
          typed={match[property] ?? ""}
          wrong={isEmpty && number === 0 ? "Must have a value" : undefined}
          refused={refusedValue(property) ?? (number === 0 ? refusedMatch : undefined)}
          change={(text) => change({ match: { ...match, [property]: text } })}
        />
      ))}
      <RateFields typed={rate} at={`${at}.`} error={error} change={(part) => change({ rate: { ...rate, ...part } })} />
    </div>
  );
}

interface ValuesProps {
  property: string;
  /** Whether an empty field matches any value. */
  isOptional: boolean;
  typed: string;
  wrong: string | undefined;
  refused: string | undefined;
  change: (text: string) => void;
}

/** Shows the field for the values of a property that a price matches. */
function Values({ property, isOptional, typed, wrong, refused, change }: ValuesProps) {
  const rule = useRule<HTMLTextAreaElement>(wrong, refused);
  const values = lines(typed).map(parseValue);
  const empty = `Text, a number, true, false, or null for events without ${property}${isOptional ? ". Empty: any value" : ""}`;
  return (
    <Textarea
      {...rule}
      label={`Values of ${property}, one per line`}
      description={values.length > 0 ? `Understood as ${values.map(typedValue).join(", ")}` : empty}
      inputWrapperOrder={["label", "input", "description", "error"]}
      autosize
      minRows={1}
      maxRows={8}
      autoComplete="off"
      value={typed}
      onChange={(event) => change(event.currentTarget.value)}
    />
  );
}
