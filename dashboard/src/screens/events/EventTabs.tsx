import { Tabs } from "../../frame/Tabs";

const tabs = [
  ["/events", "Accepted"],
  ["/events/rejected", "Rejected"],
  ["/events/conflicts", "Conflicts"],
] as const;

export function EventTabs() {
  return <Tabs label="Events" tabs={tabs} />;
}
