import { Link, useLocation, type LinkProps } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import styles from "./Tabs.module.css";

/** Shows the tabs of the screens about one subject, and marks the open one. */
export function Tabs({ label, tabs, params = {} }: { label: string; tabs: readonly (readonly [to: NonNullable<LinkProps["to"]>, name: string])[]; params?: object }) {
  const { pathname } = useLocation();
  const row = useRef<HTMLElement>(null);
  useEffect(() => {
    const tabs = row.current;
    if (!tabs) return;
    // If not all tabs fit, a fade shows at which end there are more.
    const fade = () => {
      tabs.toggleAttribute("data-before", tabs.scrollLeft > 1);
      tabs.toggleAttribute("data-after", tabs.scrollLeft + tabs.clientWidth < tabs.scrollWidth - 1);
    };
    // The open tab is scrolled to the middle, so that its neighbours are visible too.
    const fitted = new ResizeObserver(() => {
      const open = tabs.querySelector<HTMLElement>("[aria-current]");
      if (open) tabs.scrollLeft = open.offsetLeft - tabs.offsetLeft - (tabs.clientWidth - open.clientWidth) / 2;
      fade();
    });
    fitted.observe(tabs);
    tabs.addEventListener("scroll", fade, { passive: true });
    return () => {
      fitted.disconnect();
      tabs.removeEventListener("scroll", fade);
    };
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
