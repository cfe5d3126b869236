import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { frame, readSearch } from "../../routes";

export const usage = createRoute({
  getParentRoute: () => frame,
  path: "/usage",
  validateSearch: readSearch("meter", "range", "from", "to", "by", "filter", "granularity", "limit", "order", "page"),
  component: lazyRouteComponent(() => import("./Usage"), "Usage"),
});
