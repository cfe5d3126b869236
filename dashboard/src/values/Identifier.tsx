import { CopyButton, UnstyledButton } from "@mantine/core";
import styles from "./Identifier.module.css";

/** Shows an id or a key, with a button that copies it. */
export function Identifier({ children }: { children: string }) {
  return (
    <span className={styles.identifier}>
      <span className="mono">{children}</span>
      <CopyButton value={children}>
        {({ copied, copy }) => (
          <UnstyledButton className={styles.copy} onClick={copy} aria-label={`Copy ${children}`}>
            {copied ? "copied" : "copy"}
          </UnstyledButton>
        )}
      </CopyButton>
    </span>
  );
}
