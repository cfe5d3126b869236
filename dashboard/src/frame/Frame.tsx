import { Link, Outlet } from "@tanstack/react-router";
import { Suspense } from "react";
import { useSession } from "../api/session";
import { offset } from "../values/instants";
import styles from "./Frame.module.css";
import { UserMenu } from "./UserMenu";

const screens = [
  ["/overview", "Overview"],
  ["/customers", "Customers"],
  ["/meters", "Meters"],
  ["/events", "Events"],
  ["/billing", "Billing"],
  ["/developers", "Developers"],
  ["/settings", "Settings"],
] as const;

/** What is around every screen: where one is, where one can go, and as whom. */
export function Frame() {
  const { tenant } = useSession();
  return (
    <div className={styles.frame}>
      <a className={styles.skip} href="#content">
        Skip to the content
      </a>
      <header className={styles.side}>
        <Link to="/overview" className={styles.name}>
          Odometer
        </Link>
        <p className={styles.tenant} title={tenant.id}>
          {tenant.name}
        </p>
        <nav className={styles.screens} aria-label="Screens">
          {screens.map(([to, name]) => (
            <Link key={to} to={to} className={styles.screen} activeProps={{ "aria-current": "page" }}>
              {name}
            </Link>
          ))}
          <a href="/docs" className={styles.screen}>
            API reference
          </a>
        </nav>
        <div className={styles.foot}>
          <span className="muted small" title={`Times are those of ${tenant.timezone}`}>
            {[...new Set([tenant.timezone, offset(tenant.timezone, new Date())])].join(" · ")}
          </span>
          <UserMenu />
        </div>
      </header>
      <main className={styles.main} id="content" tabIndex={-1}>
        <Suspense>
          <Outlet />
        </Suspense>
      </main>
    </div>
  );
}
