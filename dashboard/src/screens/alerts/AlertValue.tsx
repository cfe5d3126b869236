import type { AlertDefinition } from "../../api/alerts";
import { Amount, Quantity } from "../../values/Amount";
import { Usage } from "../../values/Usage";

/** Shows a threshold or a value of an alert, with its unit. */
export function AlertValue({ of: { type, meter, currency }, value }: { of: Pick<AlertDefinition, "type" | "meter" | "currency">; value: string }) {
  if (type === "spend" && currency) return <Amount value={value} currency={currency} />;
  if (type === "usage" && meter) return <Usage meter={meter} value={value} />;
  return <Quantity value={value} unit={{ silence: "minutes", quota: "%" }[type as string] ?? ""} />;
}
