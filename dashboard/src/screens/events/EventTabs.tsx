import { Tabs } from "../../frame/Tabs";

const tabs = [
  ["/events", "Accepted"],
  ["/events/rejected", "Rejected"],
  ["/events/conflicts", "Conflicts"],
] as const;

/** Shows the tabs of the screens about events. */
export function EventTabs() {
  return <Tabs label="Events" tabs={tabs} />;
}
