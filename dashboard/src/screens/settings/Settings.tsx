import { Outlet } from "@tanstack/react-router";
import { Tabs } from "../../frame/Tabs";

const tabs = [
  ["/settings/members", "Members"],
  ["/settings/tenant", "Tenant"],
  ["/settings/single-sign-on", "Single sign-on"],
  ["/settings/audit-log", "Audit log"],
  ["/settings/you", "You"],
] as const;

/** Shows the title and the tabs of the settings screens. */
export function Settings() {
  return (
    <>
      <h1>Settings</h1>
      <Tabs label="Settings" tabs={tabs} />
      <Outlet />
    </>
  );
}
