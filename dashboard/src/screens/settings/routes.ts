import { createRoute, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { session } from "../../api/session";
import { frame, readSearch } from "../../routes";

const settings = createRoute({
  getParentRoute: () => frame,
  path: "/settings",
  component: lazyRouteComponent(() => import("./Settings"), "Settings"),
});

const home = createRoute({
  getParentRoute: () => settings,
  path: "/",
  async beforeLoad({ context }) {
    const { permissions } = await context.queries.ensureQueryData(session);
    throw redirect({ to: permissions.includes("tenant:manage") ? "/settings/members" : "/settings/you", replace: true });
  },
});

const members = createRoute({
  getParentRoute: () => settings,
  path: "/members",
  validateSearch: readSearch("member", "page"),
  component: lazyRouteComponent(() => import("./Members"), "Members"),
});

const tenant = createRoute({
  getParentRoute: () => settings,
  path: "/tenant",
  component: lazyRouteComponent(() => import("./Tenant"), "Tenant"),
});

const singleSignOn = createRoute({
  getParentRoute: () => settings,
  path: "/single-sign-on",
  component: lazyRouteComponent(() => import("./SingleSignOn"), "SingleSignOn"),
});

const auditLog = createRoute({
  getParentRoute: () => settings,
  path: "/audit-log",
  validateSearch: readSearch("actor", "action", "resource", "request", "from", "until", "entry", "page"),
  component: lazyRouteComponent(() => import("./AuditLog"), "AuditLog"),
});

const you = createRoute({
  getParentRoute: () => settings,
  path: "/you",
  component: lazyRouteComponent(() => import("./You"), "You"),
});

export const settingsRoutes = [settings.addChildren([home, members, tenant, singleSignOn, auditLog, you])] as const;
