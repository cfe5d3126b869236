import { Button, CopyButton } from "@mantine/core";
import styles from "./acts.module.css";
import { Dialog } from "./Dialog";

interface Props {
  title: string;
  secret: string | undefined;
  leave: () => void;
  /** What to do with it. */
  advice?: string;
  /** What one says who has done so. */
  kept?: string;
  children?: string;
}

/** What is shown once: afterwards nobody can read it, not even the API. */
export function Secret({ title, secret, leave, advice = "Keep it where secrets are kept.", kept = "I have kept it", children }: Props) {
  return (
    <Dialog title={title} opened={secret !== undefined} leave={leave}>
      <div className={styles.form}>
        <p>{["It is shown this once.", advice, children].filter(Boolean).join(" ")}</p>
        <p className={`mono ${styles.secret}`} data-secret>
          {secret}
        </p>
        <div className={styles.buttons}>
          <CopyButton value={secret ?? ""}>
            {({ copied, copy }) => (
              <Button variant="default" size="sm" onClick={copy} data-autofocus>
                {copied ? "Copied" : "Copy"}
              </Button>
            )}
          </CopyButton>
          <Button size="sm" onClick={leave}>
            {kept}
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
