import { NativeSelect, TextInput } from "@mantine/core";
import { NumberField } from "../../acts/NumberField";
import { broken } from "../../api/client";
import { base, bounds, isTiered, models, wrongField, type Model, type TermsField, type TypedTerms } from "./terms";
import { TierFields } from "./TierFields";

interface Props {
  typed: TypedTerms;
  /** Why the API refused the terms. */
  error: Error | null;
  change: (part: Partial<TypedTerms>) => void;
}

/** The fields of a price: its model, and the fields of this model. */
export function TermsFields({ typed, error, change }: Props) {
  const { model } = typed;
  const fields = (of: TermsField[]) =>
    of.map(({ name, label, description, required = false }) => (
      <NumberField
        key={name}
        label={label}
        description={description}
        required={required}
        withAsterisk={false}
        value={typed[name]}
        wrong={() => wrongField(typed, name)}
        error={broken(error, name)}
        change={(text) => change({ [name]: text })}
      />
    ));
  return (
    <>
      <NativeSelect
        label="Model"
        description={models[model].rule}
        data={Object.entries(models).map(([value, { title }]) => ({ value, label: title }))}
        value={model}
        error={broken(error, "model")}
        onChange={(event) => change({ model: event.currentTarget.value as Model })}
      />
      {fields(base)}
      {isTiered(model) && <TierFields tiers={typed.tiers} error={error} change={(tiers) => change({ tiers })} />}
      {fields(models[model].fields)}
      {fields(bounds)}
      <TextInput
        label="Currency"
        maxLength={3}
        autoComplete="off"
        value={typed.currency}
        error={broken(error, "currency")}
        onChange={(event) => change({ currency: event.currentTarget.value.toUpperCase().trim() })}
      />
    </>
  );
}
