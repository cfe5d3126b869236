import { Outlet } from "@tanstack/react-router";
import { Head } from "../../frame/Head";
import { Tabs } from "../../frame/Tabs";
import { Allowed } from "../../states/Allowed";

const tabs = [
  ["/billing/syncs", "Syncs"],
  ["/billing/holds", "Held invoices"],
  ["/billing/reconciliation", "Reconciliation"],
  ["/billing/unrated", "Unrated usage"],
  ["/billing/discrepancies", "Discrepancies"],
  ["/billing/auto-sync", "Auto-Sync"],
  ["/billing/provider", "Provider"],
  ["/billing/states", "States"],
] as const;

/** Shows the tabs of billing: how usage reaches the invoices. */
export function Billing() {
  return (
    <>
      <Head title="Billing" />
      <Tabs label="About billing" tabs={tabs} />
      <Allowed to="billing:read">
        <Outlet />
      </Allowed>
    </>
  );
}
