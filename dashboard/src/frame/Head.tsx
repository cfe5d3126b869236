import type { ReactNode } from "react";
import styles from "./Head.module.css";
import { useTitle } from "./useTitle";
import { Where } from "./Where";

interface Props {
  /** What it is a part of, as links, the whole first. */
  where?: readonly ReactNode[];
  /** What it is called there, where that is not its title. */
  here?: ReactNode;
  title: string;
  /** Of a screen under tabs, whose first heading is theirs. */
  part?: boolean;
  /** What one can do here, or search it by. */
  action?: ReactNode;
  /** The screen's one sentence or number. */
  children?: ReactNode;
}

/** What a screen begins with. */
export function Head({ where, here, title, part, action, children }: Props) {
  useTitle(title);
  const Title = part ? "h2" : "h1";
  return (
    <div className={styles.head}>
      <div>
        {where && <Where parts={where} here={here ?? title} />}
        <Title>{title}</Title>
        {children && <p className="muted">{children}</p>}
      </div>
      {action && <div className={styles.action}>{action}</div>}
    </div>
  );
}
