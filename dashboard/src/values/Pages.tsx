import { Link } from "@tanstack/react-router";
import styles from "./Pages.module.css";

/** The ways to other pages of a list. Which page it is stands in the address. */
export function Pages({ page, next, further = "Next page" }: { page: string | undefined; next: string | null; further?: string | undefined }) {
  if (!page && !next) return null;
  return (
    <nav className={styles.pages} aria-label="Pages">
      {page && (
        <Link to="." search={({ page: _, ...search }) => search}>
          First page
        </Link>
      )}
      {next && (
        <Link to="." search={(search) => ({ ...search, page: next })}>
          {further}
        </Link>
      )}
    </nav>
  );
}
