import { Textarea } from "@mantine/core";
import { NumberField } from "../../acts/NumberField";
import { useRule } from "../../acts/useRule";
import { brokenRule } from "../../api/client";
import { wrongWhole } from "../../values/decimal";
import { wrongThresholds, type Typed } from "./definition";

interface Props {
  typed: Pick<Typed, "type" | "thresholds" | "minutes">;
  error: Error | null;
  change: (part: Partial<Typed>) => void;
}

/** Shows the fields of the numbers that an alert compares: minutes of silence, or thresholds. */
export function NumberFields({ typed: { type, thresholds, minutes }, error, change }: Props) {
  if (type === "silence") {
    return (
      <NumberField label="Minutes without an event" inputMode="numeric" required withAsterisk={false} value={minutes} wrong={wrongWhole} error={brokenRule(error, "minutes")} change={(minutes) => change({ minutes })} />
    );
  }
  return <Thresholds type={type} value={thresholds} error={brokenRule(error, "thresholds")} change={(thresholds) => change({ thresholds })} />;
}

/** Shows the field for the thresholds, one per line. */
function Thresholds({ type, value, error, change }: { type: Typed["type"]; value: string; error: string | undefined; change: (text: string) => void }) {
  const rule = useRule<HTMLTextAreaElement>(wrongThresholds(value, type), error);
  return (
    <Textarea
      label={type === "quota" ? "Thresholds in percent" : "Thresholds"}
      description={`One number per line, at most ten. Each fires once for each customer and ${type === "quota" ? "period of a quota" : "billing period"}`}
      autosize
      minRows={2}
      required
      withAsterisk={false}
      inputMode="decimal"
      autoComplete="off"
      {...rule}
      value={value}
      onChange={(event) => change(event.currentTarget.value)}
    />
  );
}
