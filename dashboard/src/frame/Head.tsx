import type { ReactNode } from "react";
import styles from "./Head.module.css";
import { useTitle } from "./useTitle";
import { Where } from "./Where";

interface Props {
  /** The parents of the screen as links, the topmost first. */
  where?: readonly ReactNode[];
  /** The name of the screen after its parents, if it differs from the title. */
  here?: ReactNode;
  title: string;
  /** Whether the screen is under tabs, which have the first heading. */
  part?: boolean;
  /** The actions of the screen, or its search. */
  action?: ReactNode;
  /** The one sentence or number about the screen. */
  children?: ReactNode;
}

/** Shows the head of a screen, and sets the window's title. */
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
