import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { frame, readSearch } from "../../routes";

export const overview = createRoute({
  getParentRoute: () => frame,
  path: "/overview",
  validateSearch: readSearch("meter", "by"),
  component: lazyRouteComponent(() => import("./Overview"), "Overview"),
});
