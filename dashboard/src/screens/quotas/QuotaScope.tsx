import { groupText, type GroupKey } from "../../values/groups";

/** The meter whose usage is limited, and the group if it is not all usage. */
export function QuotaScope({ of: { meter, group } }: { of: { meter: string; group: GroupKey | null } }) {
  return (
    <>
      {meter}
      {group && <span className="muted"> {groupText(group)}</span>}
    </>
  );
}
