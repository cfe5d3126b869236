import { Button, CopyButton } from "@mantine/core";
import styles from "./acts.module.css";
import { Dialog } from "./Dialog";

/** What is shown once: afterwards nobody can read it, not even the API. */
export function Secret({ title, secret, leave, children }: { title: string; secret: string | undefined; leave: () => void; children?: string }) {
  return (
    <Dialog title={title} opened={secret !== undefined} leave={leave}>
      <div className={styles.form}>
        <p>It is shown this once. Keep it where secrets are kept.{children && ` ${children}`}</p>
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
            I have kept it
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
