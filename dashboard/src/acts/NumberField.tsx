import { TextInput, type TextInputProps } from "@mantine/core";
import { useRule } from "./useRule";

interface Props extends Pick<TextInputProps, "label" | "aria-label" | "description" | "inputMode" | "required" | "withAsterisk"> {
  /** As it is typed: a number in JavaScript would lose digits. */
  value: string;
  /** Returns how to write it, if a text is not a number that the API takes. */
  wrong: (text: string) => string | undefined;
  /** Why the API refused it. */
  error?: string | undefined;
  change: (text: string) => void;
}

/** A field for a number, which is never guessed from another way to write it. */
export function NumberField({ value, wrong, error, change, inputMode = "decimal", ...rest }: Props) {
  const rule = useRule<HTMLInputElement>(wrong(value), error);
  return <TextInput {...rest} {...rule} inputMode={inputMode} autoComplete="off" value={value} onChange={(event) => change(event.currentTarget.value.trim())} />;
}
