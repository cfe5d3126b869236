import { Link } from "@tanstack/react-router";
import styles from "./Opener.module.css";

interface Props {
  /** The name of the parameter in the address that holds the open row. */
  name: string;
  value: string;
  open: boolean;
  children: string;
}

/** Unfolds a row of a list in place, and folds it again. */
export function Opener({ name, value, open, children }: Props) {
  const search = (was: object) => {
    const { [name]: _, ...others } = was as Record<string, string>;
    return (open ? others : { ...others, [name]: value }) as never;
  };
  return (
    <Link to="." search={search} replace resetScroll={false} className={styles.opener} role="button" aria-expanded={open}>
      <span className={styles.mark} aria-hidden="true" />
      {children}
    </Link>
  );
}
