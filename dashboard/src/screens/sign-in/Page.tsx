import type { FormEvent, ReactNode } from "react";
import { useTitle } from "../../frame/useTitle";
import styles from "./Page.module.css";

interface Props {
  title: string;
  /** Sends the form. Absent if the page has no form. */
  onSubmit?: () => void;
  /** The links to other pages, below the content. */
  ways?: ReactNode;
  children: ReactNode;
}

/** Shows a page for users that are not signed in, with one block in the middle. */
export function Page({ title, onSubmit, ways, children }: Props) {
  useTitle(title);
  const sent = (event: FormEvent) => {
    event.preventDefault();
    onSubmit?.();
  };
  return (
    <main className={styles.page}>
      <p className={styles.name}>Odometer</p>
      {onSubmit ? (
        <form className={styles.form} onSubmit={sent}>
          <h1>{title}</h1>
          {children}
        </form>
      ) : (
        <section className={styles.form} aria-labelledby="title">
          <h1 id="title">{title}</h1>
          {children}
        </section>
      )}
      {ways && <nav className={styles.ways}>{ways}</nav>}
    </main>
  );
}
