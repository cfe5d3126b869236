import { Button } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import { useRef, useState } from "react";
import styles from "./acts.module.css";
import { Dialog, useClose } from "./Dialog";
import { useLoss, type Loss } from "./unsaved";

interface Props {
  title: string;
  secret: string | undefined;
  leave: () => void;
  /** The advice for the user about the secret. */
  advice?: string;
  children?: string;
}

/** Shows a secret once. Afterwards it cannot be read, not even by the API. */
export function Secret({ title, secret, leave, ...rest }: Props) {
  return (
    <Dialog title={title} opened={secret !== undefined} leave={leave} explicit>
      <Shown secret={secret ?? ""} {...rest} />
    </Dialog>
  );
}

/** Shows the secret and the button that closes the dialog. */
function Shown({ secret, advice = "Store it in your secret store.", children }: Pick<Props, "advice" | "children"> & { secret: string }) {
  const close = useClose();
  return (
    <div className={styles.form}>
      <p>{["It is shown only once.", advice, children].filter(Boolean).join(" ")}</p>
      <Once secret={secret}>
        <Button size="sm" onClick={close}>
          I have copied it
        </Button>
      </Once>
    </div>
  );
}

const notCopied: Loss = {
  title: "Close without copying it?",
  says: "You have not copied it, and it cannot be shown again.",
  stay: "Go back",
  leave: "Close without copying",
};

/** Shows a secret with a button that copies it. Asks the user before they leave without a copy. */
export function Once({ secret, children }: { secret: string; children?: React.ReactNode }) {
  const element = useRef<HTMLDivElement>(null);
  const [taken, setTaken] = useState(false);
  const { copy, copied, error } = useClipboard();
  const kept = taken || copied;
  if (copied && !taken) setTaken(true);
  useLoss(element, () => (kept ? undefined : notCopied));
  return (
    <div ref={element} className={styles.form}>
      <p className={`mono ${styles.secret}`} data-secret onCopy={() => setTaken(true)}>
        {secret}
      </p>
      {error && <p role="alert">The browser does not allow this page to copy text. Select the text and copy it.</p>}
      <div className={styles.buttons}>
        <Button variant="default" size="sm" onClick={() => copy(secret)} data-autofocus>
          {copied ? "Copied" : "Copy"}
        </Button>
        {children}
      </div>
    </div>
  );
}
