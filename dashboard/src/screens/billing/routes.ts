import { createRoute, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { frame, readSearch } from "../../routes";

const billing = createRoute({
  getParentRoute: () => frame,
  path: "/billing",
  component: lazyRouteComponent(() => import("./Billing"), "Billing"),
});

const home = createRoute({
  getParentRoute: () => billing,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/billing/syncs", replace: true });
  },
});

const syncs = createRoute({
  getParentRoute: () => billing,
  path: "/syncs",
  validateSearch: readSearch("status", "page"),
  component: lazyRouteComponent(() => import("./Syncs"), "Syncs"),
});

const sync = createRoute({
  getParentRoute: () => frame,
  path: "/billing/syncs/$sync",
  component: lazyRouteComponent(() => import("./Sync"), "Sync"),
});

const holds = createRoute({
  getParentRoute: () => billing,
  path: "/holds",
  validateSearch: readSearch("state", "page", "hold"),
  component: lazyRouteComponent(() => import("./Holds"), "Holds"),
});

const reconciliation = createRoute({
  getParentRoute: () => billing,
  path: "/reconciliation",
  validateSearch: readSearch("state", "page", "open"),
  component: lazyRouteComponent(() => import("./Reconciliation"), "Reconciliation"),
});

const discrepancies = createRoute({
  getParentRoute: () => billing,
  path: "/discrepancies",
  validateSearch: readSearch("page"),
  component: lazyRouteComponent(() => import("./Discrepancies"), "Discrepancies"),
});

const unrated = createRoute({
  getParentRoute: () => billing,
  path: "/unrated",
  validateSearch: readSearch("page"),
  component: lazyRouteComponent(() => import("./Unrated"), "Unrated"),
});

const autoSync = createRoute({
  getParentRoute: () => billing,
  path: "/auto-sync",
  component: lazyRouteComponent(() => import("./AutoSync"), "AutoSync"),
});

const provider = createRoute({
  getParentRoute: () => billing,
  path: "/provider",
  component: lazyRouteComponent(() => import("./Provider"), "Provider"),
});

const states = createRoute({
  getParentRoute: () => billing,
  path: "/states",
  component: lazyRouteComponent(() => import("./States"), "States"),
});

export const billingRoutes = [billing.addChildren([home, syncs, holds, reconciliation, unrated, discrepancies, autoSync, provider, states]), sync] as const;
