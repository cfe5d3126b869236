import { Link } from "@tanstack/react-router";
import styles from "./Pages.module.css";

/** Shows links to the first and the next page of a list. The address has the token of the current page. */
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
