import { groupText, type GroupKey } from "../../values/groups";

/** Shows the meter that a quota limits, and the group unless the quota limits all usage. */
export function QuotaScope({ of: { meter, group } }: { of: { meter: string; group: GroupKey | null } }) {
  return (
    <>
      {meter}
      {group && <span className="muted"> {groupText(group)}</span>}
    </>
  );
}
