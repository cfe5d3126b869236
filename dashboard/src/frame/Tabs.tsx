import { Link, useLocation, type LinkProps } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import styles from "./Tabs.module.css";

/** The screens about one thing, of which one is open. */
export function Tabs({ label, tabs, params = {} }: { label: string; tabs: readonly (readonly [to: NonNullable<LinkProps["to"]>, name: string])[]; params?: object }) {
  const { pathname } = useLocation();
  const row = useRef<HTMLElement>(null);
  useEffect(() => {
    const tabs = row.current;
    if (!tabs) return;
    // Where not all fit, the open one is seen.
    const fitted = new ResizeObserver(() => {
      const open = tabs.querySelector<HTMLElement>("[aria-current]");
      if (open) tabs.scrollLeft = open.offsetLeft - tabs.offsetLeft;
    });
    fitted.observe(tabs);
    return () => fitted.disconnect();
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
