import { Confirm } from "../../acts/Confirm";
import { useAct } from "../../acts/useAct";
import { deleteQuota, type Quota } from "../../api/quotas";
import { quotaName } from "./words";

interface Props {
  id: string;
  quota: Pick<Quota, "meter" | "group" | "period">;
  /** The effect of the deletion. */
  children: string;
}

/** Deletes a quota after a confirmation. */
export function DeleteQuota({ id, quota, children }: Props) {
  const remove = useAct<string>(() => deleteQuota(id), { changes: [["quotas"]] });
  return (
    <Confirm verb="Delete" thing={quotaName(quota)} needs="quotas:write" act={remove} danger>
      {children}
    </Confirm>
  );
}
