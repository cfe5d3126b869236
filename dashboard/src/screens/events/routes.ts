import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { asks, frame } from "../../routes";

export const events = createRoute({
  getParentRoute: () => frame,
  path: "/events",
  validateSearch: asks("customer", "type", "key", "from", "until", "paused", "event", "page"),
  component: lazyRouteComponent(() => import("./Events"), "Events"),
});
