import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useLocation } from "@tanstack/react-router";
import { Suspense, useEffect, useRef, useState } from "react";
import { attentionCount } from "../api/attention";
import { useSession } from "../api/session";
import { offset } from "../values/instants";
import { Find } from "./Find";
import styles from "./Frame.module.css";
import { Leaving } from "./Leaving";
import { screens } from "./screens";
import { SignInAgain } from "./SignInAgain";
import { useArrival } from "./useArrival";
import { UserMenu } from "./UserMenu";

/** Shows the frame around a screen: the tenant, Find, the navigation, the time zone and the user menu. */
export function Frame() {
  const { tenant } = useSession();
  const content = useArrival();
  return (
    <div className={styles.frame}>
      <a className={styles.skip} href="#content">
        Skip to the content
      </a>
      <header className={styles.side}>
        <Link to="/overview" className={styles.name}>
          Odometer
        </Link>
        <p className={styles.tenant}>
          <span title={tenant.id}>{tenant.name}</span>
          <span className={styles.zone}> · {tenant.timezone}</span>
        </p>
        <Find />
        <Navigation />
        <div className={styles.foot}>
          <span className="muted small" title={`Times are in ${tenant.timezone}`}>
            {[...new Set([tenant.timezone, offset(tenant.timezone, new Date())])].join(" · ")}
          </span>
          <UserMenu />
        </div>
      </header>
      <main ref={content} className={styles.main} id="content" tabIndex={-1}>
        <Suspense>
          <Outlet />
        </Suspense>
      </main>
      <Leaving />
      <SignInAgain />
    </div>
  );
}

/** Shows the links to the screens: beside the screen, and on a phone in a sheet that opens from below. */
function Navigation() {
  const { pathname } = useLocation();
  const [opened, setOpened] = useState(false);
  const opener = useRef<HTMLButtonElement>(null);
  useEffect(() => setOpened(false), [pathname]);
  useEffect(() => {
    if (!opened) return;
    const leave = ({ key }: KeyboardEvent) => {
      if (key !== "Escape") return;
      setOpened(false);
      opener.current?.focus();
    };
    window.addEventListener("keydown", leave);
    return () => window.removeEventListener("keydown", leave);
  }, [opened]);
  const here = screens.find(([to]) => pathname.startsWith(to));
  return (
    <>
      {opened && <div className={styles.behind} onClick={() => setOpened(false)} />}
      <button ref={opener} type="button" className={styles.opener} aria-expanded={opened} aria-controls="screens" onClick={() => setOpened(!opened)}>
        {here?.[1] ?? "Screens"}
        <span className={styles.mark} aria-hidden="true" />
      </button>
      <nav id="screens" className={styles.screens} data-opened={opened || undefined} aria-label="Screens">
        {screens.map(([to, name]) => (
          <Link key={to} to={to} className={styles.screen} activeProps={{ "aria-current": "page" }} onClick={() => setOpened(false)}>
            {name}
            {to === "/billing" && <Waiting />}
          </Link>
        ))}
        <a href="/docs" className={styles.screen}>
          API reference
        </a>
      </nav>
    </>
  );
}

/** Shows the number of items that need attention, if there are any. */
function Waiting() {
  const { data: count = 0 } = useQuery(attentionCount(useSession()));
  if (count === 0) return null;
  return (
    <span className={styles.count}>
      {count}
      <span className="unseen"> need attention</span>
    </span>
  );
}
