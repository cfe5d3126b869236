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
  /** The text of the button: a verb and its object. */
  submit: string;
  /** Sends the form, with the token if the API required a confirmation and the user has confirmed the change. */
  onSubmit: (confirm?: string) => void;
  /** The reason why the form cannot be sent now, if any. */
  not?: string | undefined;
  danger?: boolean | undefined;
  /** Leaves the form, for example by closing its dialog. Without it, the form has no Back button. */
  leave?: () => void;
  children: ReactNode;
}

/** Shows fields, the reason for a refusal, and the button. Asks the user before typed text is lost. */
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
