import { Textarea } from "@mantine/core";
import { useState, type ReactNode } from "react";
import { broken } from "../api/client";
import type { Act } from "./useAct";
import { Dialog } from "./Dialog";
import { Form } from "./Form";
import { Verb } from "./Verb";

interface Props {
  /** What is done, as "Revoke". */
  verb: string;
  /** To what, as "key …8fQ2". */
  thing?: string;
  needs: string;
  not?: string | undefined;
  /** Given the reason where one is asked, or the token where the API wants it confirmed, else nothing. */
  act: Act<string>;
  /** What the reason is for, where one is asked: the API wants it, and the audit log keeps it. */
  asks?: string;
  /** It takes something away. */
  danger?: boolean;
  /** What will be different. */
  children: ReactNode;
}

/** A button that says what it will do before it does it. Where one takes the place of another, each has a key: no dialog goes over from one to the other. */
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
          {asks && <Textarea label={asks} required withAsterisk={false} autosize minRows={2} value={reason} error={broken(act.error, "reason")} onChange={(event) => setReason(event.currentTarget.value)} data-autofocus />}
        </Form>
      </Dialog>
    </>
  );
}
