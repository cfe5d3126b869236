import { NativeSelect } from "@mantine/core";
import { useNavigate, useSearch } from "@tanstack/react-router";

interface Props<Name extends string> {
  /** Of the address. */
  name: Name;
  label: string;
  /** What may be chosen, the first of it where the address says nothing. */
  options: readonly (readonly [value: string, shown: string])[];
}

/** What of a list is shown. It stands in the address, and another choice begins at the first page. */
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
