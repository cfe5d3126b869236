import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { asks, frame } from "../../routes";

export const usage = createRoute({
  getParentRoute: () => frame,
  path: "/usage",
  validateSearch: asks("meter", "range", "from", "to", "by", "filter", "granularity", "limit", "order", "page"),
  component: lazyRouteComponent(() => import("./Usage"), "Usage"),
});
