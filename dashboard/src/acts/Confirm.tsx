import { Textarea } from "@mantine/core";
import { useState, type ReactNode } from "react";
import { brokenRule } from "../api/client";
import type { Act } from "./useAct";
import { Dialog } from "./Dialog";
import { Form } from "./Form";
import { Verb } from "./Verb";

interface Props {
  /** The action, such as "Revoke". */
  verb: string;
  /** The object of the action, such as "key …8fQ2". */
  thing?: string;
  needs: string;
  not?: string | undefined;
  /** Performs the action. The input is the confirmation token, or else the reason, which is empty without asks. */
  act: Act<string>;
  /** The label of the field for the reason, if the API requires one. The audit log keeps the reason. */
  asks?: string;
  /** Whether the action takes something away. */
  danger?: boolean;
  /** The effect of the action. */
  children: ReactNode;
}

/**
 * Shows a button for an action, and a dialog with the effect of the action before it is done. If one Confirm replaces
 * another, they need different React keys, so that the dialog of one is not reused for the other.
 */
export function Confirm({ verb, thing, needs, not, act, asks, danger, children }: Props) {
  const [opened, setOpened] = useState(false);
  const [reason, setReason] = useState("");
  const whole = thing ? `${verb} ${thing}` : verb;
  const leave = () => {
    setOpened(false);
    setReason("");
    act.reset();
  };
  return (
    <>
      <Verb needs={needs} not={not} size="xs" label={whole} onClick={() => setOpened(true)}>
        {verb}
      </Verb>
      <Dialog title={whole} opened={opened} leave={leave}>
        <Form
          act={act}
          needs={needs}
          submit={whole}
          danger={danger}
          leave={leave}
          onSubmit={(token) => act.mutate(token ?? reason, { onSuccess: leave })}
        >
          <div>{children}</div>
          {asks && <Textarea label={asks} required withAsterisk={false} autosize minRows={2} value={reason} error={brokenRule(act.error, "reason")} onChange={(event) => setReason(event.currentTarget.value)} data-autofocus />}
        </Form>
      </Dialog>
    </>
  );
}
