import { Link, useLocation, type LinkProps } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import styles from "./Tabs.module.css";

/** The screens about one thing, of which one is open. */
export function Tabs({ label, tabs, params = {} }: { label: string; tabs: readonly (readonly [to: NonNullable<LinkProps["to"]>, name: string])[]; params?: object }) {
  const { pathname } = useLocation();
  const row = useRef<HTMLElement>(null);
  useEffect(() => {
    const open = row.current?.querySelector<HTMLElement>("[aria-current]");
    if (row.current && open) row.current.scrollLeft = open.offsetLeft - row.current.offsetLeft; // where not all fit
  }, [pathname]);
  return (
    <nav ref={row} className={styles.tabs} aria-label={label}>
      {tabs.map(([to, name]) => (
        <Link key={to} to={to} params={params} className={styles.tab} activeProps={{ "aria-current": "page" }} activeOptions={{ includeSearch: false, exact: tabs.some(([other]) => other.startsWith(`${to}/`)) }}>
          {name}
        </Link>
      ))}
    </nav>
  );
}
