import { Link, type LinkProps } from "@tanstack/react-router";
import styles from "./Tabs.module.css";

/** The screens about one thing, of which one is open. */
export function Tabs({ label, tabs, params = {} }: { label: string; tabs: readonly (readonly [to: NonNullable<LinkProps["to"]>, name: string])[]; params?: object }) {
  return (
    <nav className={styles.tabs} aria-label={label}>
      {tabs.map(([to, name]) => (
        <Link key={to} to={to} params={params} className={styles.tab} activeProps={{ "aria-current": "page" }} activeOptions={{ includeSearch: false }}>
          {name}
        </Link>
      ))}
    </nav>
  );
}
