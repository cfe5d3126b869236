import { NativeSelect } from "@mantine/core";
import { useNavigate, useSearch } from "@tanstack/react-router";

interface Props<Name extends string> {
  /** The name of the parameter in the address. */
  name: Name;
  label: string;
  /** The options. The first one applies if the address has no value. */
  options: readonly (readonly [value: string, shown: string])[];
}

/** Selects the part of a list that is shown. The address holds the choice. A new choice starts at the first page. */
export function Filter<Name extends string>({ name, label, options }: Props<Name>) {
  const search: Record<string, string | undefined> = useSearch({ strict: false });
  const navigate = useNavigate();
  const choose = (value: string) => {
    const { page: _, [name]: __, ...others } = search;
    void navigate({ to: ".", search: (value === "" ? others : { ...others, [name]: value }) as never, replace: true });
  };
  return (
    <NativeSelect
      aria-label={label}
      value={search[name] ?? ""}
      onChange={(event) => choose(event.currentTarget.value)}
      data={options.map(([value, shown]) => ({ value, label: shown }))}
    />
  );
}
