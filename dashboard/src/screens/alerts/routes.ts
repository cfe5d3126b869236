import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { frame, readSearch } from "../../routes";

const alerts = createRoute({
  getParentRoute: () => frame,
  path: "/alerts",
  validateSearch: readSearch("page"),
  component: lazyRouteComponent(() => import("./Alerts"), "Alerts"),
});

const create = createRoute({
  getParentRoute: () => frame,
  path: "/alerts/new",
  component: lazyRouteComponent(() => import("./NewAlert"), "NewAlert"),
});

const alert = createRoute({
  getParentRoute: () => frame,
  path: "/alerts/$alert",
  validateSearch: readSearch("page"),
  component: lazyRouteComponent(() => import("./Alert"), "OneAlert"),
});

export const alertRoutes = [alerts, create, alert] as const;
