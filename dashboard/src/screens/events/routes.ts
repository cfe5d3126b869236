import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { frame, readSearch } from "../../routes";

const events = createRoute({
  getParentRoute: () => frame,
  path: "/events",
  validateSearch: readSearch("customer", "type", "key", "from", "until", "paused", "event", "page"),
  component: lazyRouteComponent(() => import("./Events"), "Events"),
});

const rejected = createRoute({
  getParentRoute: () => frame,
  path: "/events/rejected",
  validateSearch: readSearch("days"),
  component: lazyRouteComponent(() => import("./Rejected"), "Rejected"),
});

const conflicts = createRoute({
  getParentRoute: () => frame,
  path: "/events/conflicts",
  validateSearch: readSearch("page"),
  component: lazyRouteComponent(() => import("./Conflicts"), "Conflicts"),
});

const event = createRoute({
  getParentRoute: () => frame,
  path: "/events/$event",
  validateSearch: readSearch("customer", "at"),
  component: lazyRouteComponent(() => import("./Event"), "Event"),
});

export const eventRoutes = [events, rejected, conflicts, event] as const;
