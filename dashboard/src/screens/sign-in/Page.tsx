import type { FormEvent, ReactNode } from "react";
import { useTitle } from "../../frame/useTitle";
import styles from "./Page.module.css";

interface Props {
  title: string;
  /** Of a form: what its button does. */
  onSubmit?: () => void;
  /** Other ways, below. */
  ways?: ReactNode;
  children: ReactNode;
}

/** A page for who has not signed in: one thing in the middle. */
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
