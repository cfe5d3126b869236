import { TextInput, type TextInputProps } from "@mantine/core";
import { useRule } from "./useRule";

interface Props extends Pick<TextInputProps, "label" | "aria-label" | "description" | "inputMode" | "required" | "withAsterisk"> {
  /** The typed text. A number in JavaScript would lose digits. */
  value: string;
  /** Returns an error message if the API does not accept the text. */
  wrong: (text: string) => string | undefined;
  /** The reason why the API refused the number. */
  error?: string | undefined;
  change: (text: string) => void;
}

/** Shows a field for a number. It does not convert numbers from other notations. */
export function NumberField({ value, wrong, error, change, inputMode = "decimal", ...rest }: Props) {
  const rule = useRule<HTMLInputElement>(wrong(value), error);
  return <TextInput {...rest} {...rule} inputMode={inputMode} autoComplete="off" value={value} onChange={(event) => change(event.currentTarget.value.trim())} />;
}
