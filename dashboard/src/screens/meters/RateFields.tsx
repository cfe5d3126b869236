import { NativeSelect } from "@mantine/core";
import type { ReactNode } from "react";
import { NumberField } from "../../acts/NumberField";
import { brokenRule } from "../../api/client";
import { included, isTiered, models, wrongInRate, type Model, type RateField, type TypedRate } from "./rates";
import { TierFields } from "./TierFields";

interface Props {
  typed: TypedRate;
  /** The prefix of the fields in errors of the API: "", or a path that ends with a dot. */
  at: string;
  /** The error with which the API refused the terms. */
  error: Error | null;
  change: (part: Partial<TypedRate>) => void;
  /** Fields below the model. */
  children?: ReactNode;
}

/** Shows the model of a price, and the fields of this model. */
export function RateFields({ typed, at, error, change, children }: Props) {
  const { model } = typed;
  const textOf = (model: Model) => (at === "" ? undefined : models[model].alone) ?? models[model];
  const field = ({ name, label, description, required = false }: RateField) => (
    <NumberField
      key={name}
      label={label}
      description={description}
      required={required}
      withAsterisk={false}
      value={typed[name]}
      wrong={() => wrongInRate(typed, name)}
      error={brokenRule(error, at + name)}
      change={(text) => change({ [name]: text })}
    />
  );
  return (
    <>
      <NativeSelect
        label="Model"
        description={textOf(model).rule}
        data={(Object.keys(models) as Model[]).map((value) => ({ value, label: textOf(value).title }))}
        value={model}
        error={brokenRule(error, `${at}model`)}
        onChange={(event) => change({ model: event.currentTarget.value as Model })}
      />
      {children}
      {field(included)}
      {isTiered(model) && <TierFields tiers={typed.tiers} at={at} error={error} change={(tiers) => change({ tiers })} />}
      {models[model].fields.map(field)}
    </>
  );
}
