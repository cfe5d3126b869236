import { Button, NativeSelect, Textarea, TextInput } from "@mantine/core";
import { useRef, type ChangeEvent, type Ref } from "react";
import { flushSync } from "react-dom";
import { brokenRule } from "../../api/client";
import { hasValues, operators, type Operator } from "./counting";
import { hasSeveralValues, usedLines, valuesOf, type TypedFilter } from "./definition";
import { typedValue } from "./filterValues";
import styles from "./Filters.module.css";

const mostFilters = 10;

const choices = Object.entries(operators).map(([value, label]) => ({ value, label }));

interface Props {
  filters: TypedFilter[];
  error: Error | null;
  change: (filters: TypedFilter[]) => void;
}

/** Shows the filters of a meter, one per row. */
export function Filters({ filters, error, change }: Props) {
  const newest = useRef<HTMLInputElement>(null);
  const adding = useRef<HTMLButtonElement>(null);
  const add = () => {
    flushSync(() => change([...filters, { property: "", operator: "eq", values: "" }]));
    newest.current?.focus();
  };
  const remove = (index: number) => {
    flushSync(() => change(filters.filter((_, other) => other !== index)));
    adding.current?.focus();
  };
  return (
    <fieldset className={styles.filters} aria-describedby="filters-meaning">
      <legend>Filters</legend>
      <p id="filters-meaning" className="muted small">
        {filters.length === 0 ? "Without a filter, the meter counts events with any properties" : "Only the events that meet all filters are counted"}
      </p>
      {filters.map((filter, index) => (
        <Row
          key={index}
          filter={filter}
          number={index + 1}
          refused={(field) => brokenRule(error, `filters[${index}].${field}`)}
          firstInput={index === filters.length - 1 ? newest : null}
          change={(part) => change(filters.map((one, other) => (other === index ? { ...one, ...part } : one)))}
          remove={() => remove(index)}
        />
      ))}
      <div>
        <Button ref={adding} variant="default" size="xs" disabled={filters.length >= mostFilters} onClick={add}>
          {filters.length >= mostFilters ? `At most ${mostFilters} filters` : "Add a filter"}
        </Button>
      </div>
    </fieldset>
  );
}

interface RowProps {
  filter: TypedFilter;
  number: number;
  refused: (field: string) => string | undefined;
  firstInput: Ref<HTMLInputElement>;
  change: (part: Partial<TypedFilter>) => void;
  remove: () => void;
}

/** Edits a filter, and shows the button that removes it. */
function Row({ filter, number, refused, firstInput, change, remove }: RowProps) {
  return (
    <div className={styles.row} role="group" aria-label={`Filter ${number}`}>
      <TextInput
        ref={firstInput}
        label="Property"
        required
        withAsterisk={false}
        autoComplete="off"
        value={filter.property}
        error={refused("property")}
        onChange={(event) => change({ property: event.currentTarget.value })}
      />
      <NativeSelect
        label="Condition"
        data={choices}
        value={filter.operator}
        error={refused("operator")}
        onChange={(event) => change({ operator: event.currentTarget.value as Operator })}
      />
      {hasValues(filter.operator) && <Values filter={filter} error={refused("values")} change={(values) => change({ values })} />}
      <Button className={styles.remove} variant="default" size="xs" aria-label={`Remove filter ${number}`} onClick={remove}>
        Remove
      </Button>
    </div>
  );
}

/** Shows the field for the values of a filter, and how the values are parsed. */
function Values({ filter, error, change }: { filter: TypedFilter; error: string | undefined; change: (values: string) => void }) {
  const props = {
    className: styles.values!,
    description: meaning(filter),
    inputWrapperOrder: ["label", "input", "description", "error"] as ("label" | "input" | "description" | "error")[],
    required: true,
    withAsterisk: false,
    autoComplete: "off",
    value: usedLines(filter),
    error,
    onChange: (event: ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => change(event.currentTarget.value),
  };
  if (hasSeveralValues(filter.operator)) return <Textarea {...props} label="Values, one per line" autosize minRows={2} />;
  return <TextInput {...props} label="Value" />;
}

/** Describes how the typed values are understood. */
function meaning(filter: TypedFilter): string {
  const values = valuesOf(filter);
  if (values.length === 0) return 'A number, true, false or text. For the text 7, type "7"';
  return `Understood as ${values.map(typedValue).join(", ")}`;
}
