import { useState } from "react";
import { Dialog } from "../../acts/Dialog";
import { Verb } from "../../acts/Verb";
import type { QuotaSubject } from "../../api/quotas";
import { QuotaForm, type QuotaTerms } from "./QuotaForm";
import { quotaName } from "./words";

interface Props {
  subject: QuotaSubject;
  /** The button's text. */
  verb?: "Change" | "Replace";
  /** The quota to change, or the plan's quota to replace. */
  quota?: QuotaTerms;
}

/** Shows a button that opens the form of a quota. Without a given quota, the form sets a new quota. */
export function SetQuota({ subject, verb, quota }: Props) {
  const [opened, setOpened] = useState(false);
  const leave = () => setOpened(false);
  const title = verb && quota ? `${verb} ${quotaName(quota)}` : "Set a quota";
  return (
    <>
      <Verb needs="quotas:write" {...(verb ? { size: "xs", label: title } : { variant: "filled" })} onClick={() => setOpened(true)}>
        {verb ?? title}
      </Verb>
      <Dialog title={title} opened={opened} leave={leave}>
        <QuotaForm subject={subject} quota={quota} submit={quota ? "Save the quota" : "Set the quota"} leave={leave} />
      </Dialog>
    </>
  );
}
