import { Checkbox, TextInput } from "@mantine/core";
import { NumberField } from "../../acts/NumberField";
import { brokenRule } from "../../api/client";
import { DimensionFields } from "./DimensionFields";
import { newEntry } from "./dimensions";
import styles from "./Prices.module.css";
import { RateFields } from "./RateFields";
import { basePrice, bounds, wrongInPeriod, type PeriodField, type TypedTerms } from "./terms";

interface Props {
  typed: TypedTerms;
  /** The properties by which the meter groups usage. */
  properties: string[];
  /** The error with which the API refused the terms. */
  error: Error | null;
  change: (part: Partial<TypedTerms>) => void;
}

/** Shows the fields of a price: those of one model, or prices by dimension. */
export function TermsFields({ typed, properties, error, change }: Props) {
  const field = ({ name, label, description }: PeriodField) => (
    <NumberField
      key={name}
      label={label}
      description={description}
      value={typed[name]}
      wrong={() => wrongInPeriod(typed, name)}
      error={brokenRule(error, name)}
      change={(text) => change({ [name]: text })}
    />
  );
  const chooseBy = (chosen: string[]) => {
    const { by, entries, ...rate } = typed;
    change({ by: offered.filter((property) => chosen.includes(property)), entries: entries.length > 0 ? entries : [newEntry(rate)] });
  };
  const offered = [...new Set([...properties, ...typed.by])];
  return (
    <>
      {offered.length > 0 && (
        <Checkbox.Group
          label="The price depends on"
          description="Properties by which the meter groups usage. None: all usage has one price"
          value={typed.by}
          error={brokenRule(error, "dimensions.by")}
          onChange={chooseBy}
        >
          <div className={styles.choices}>
            {offered.map((property) => (
              <Checkbox key={property} value={property} label={property} />
            ))}
          </div>
        </Checkbox.Group>
      )}
      {typed.by.length > 0 ? (
        <>
          {field(basePrice)}
          <DimensionFields typed={typed} error={error} change={change} />
        </>
      ) : (
        <RateFields typed={typed} at="" error={error} change={change}>
          {field(basePrice)}
        </RateFields>
      )}
      {bounds.map(field)}
      <TextInput
        label="Currency"
        maxLength={3}
        autoComplete="off"
        value={typed.currency}
        error={brokenRule(error, "currency")}
        onChange={(event) => change({ currency: event.currentTarget.value.toUpperCase().trim() })}
      />
    </>
  );
}
