import type { Alert } from "../../api/alerts";
import { useSession } from "../../api/session";

/** Returns the reason why the user cannot see the values of an alert of this type, if any. */
export function useHiddenCharges(type: Alert["type"]): string | undefined {
  const { permissions } = useSession();
  return type === "spend" && !permissions.includes("billing:read") ? "A spend alert shows charges. The permission billing:read is required" : undefined;
}
