import { Button } from "@mantine/core";
import { useState, type ReactNode } from "react";
import styles from "./Folded.module.css";

/**
 * Shows a search of several fields. On a phone, the fields are folded until the user opens them. asked: a search is
 * active, so the fields are open at first.
 */
export function Folded({ opener, asked, children }: { opener: string; asked: boolean; children: ReactNode }) {
  const [opened, setOpened] = useState(asked);
  return (
    <>
      {!opened && (
        <Button variant="default" className={styles.opener} aria-expanded={false} onClick={() => setOpened(true)}>
          {opener}
        </Button>
      )}
      <div className={styles.folded} data-opened={opened || undefined}>
        {children}
      </div>
    </>
  );
}
