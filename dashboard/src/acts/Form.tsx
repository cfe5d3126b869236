import { Button } from "@mantine/core";
import { useRef, type FormEvent, type ReactNode } from "react";
import type { Act } from "./useAct";
import styles from "./acts.module.css";
import { Confirmation, confirmationOf } from "./Confirmation";
import { useClose } from "./Dialog";
import { Refused } from "./Refused";
import { useTyped } from "./unsaved";
import { Verb } from "./Verb";

interface Props {
  act: Pick<Act<never>, "isPending" | "error" | "reset"> & Partial<Pick<Act<never>, "successes">>;
  needs: string;
  /** What its button says: a verb, and the thing. */
  submit: string;
  /** Given the token, where the API wants the change confirmed and it is. */
  onSubmit: (confirm?: string) => void;
  /** Why it can not be sent now, if so. */
  not?: string | undefined;
  danger?: boolean | undefined;
  /** Where it can be left, as in a dialog. */
  leave?: () => void;
  children: ReactNode;
}

/** Fields, why they were refused, and the button. The user is asked before they leave what they typed. */
export function Form({ act, needs, submit, onSubmit, not, danger, leave, children }: Props) {
  const form = useRef<HTMLFormElement>(null);
  const typed = useTyped(form, act.successes);
  const close = useClose() ?? leave;
  const sent = (event: FormEvent) => {
    event.preventDefault();
    if (!act.isPending) onSubmit();
  };
  const confirmation = confirmationOf(act.error);
  return (
    <>
      <form ref={form} className={styles.form} onSubmit={sent} {...typed}>
        {children}
        <Refused error={confirmation ? null : act.error} />
        <div className={styles.buttons}>
          {leave && (
            <Button variant="default" size="sm" onClick={close}>
              Back
            </Button>
          )}
          <Verb type="submit" needs={needs} not={not} variant={danger ? "danger" : "filled"} loading={act.isPending}>
            {submit}
          </Verb>
        </div>
      </form>
      {confirmation && <Confirmation of={confirmation} needs={needs} leave={act.reset} confirm={onSubmit} />}
    </>
  );
}
