import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { asks, frame } from "../../routes";

export const overview = createRoute({
  getParentRoute: () => frame,
  path: "/overview",
  validateSearch: asks("meter", "by"),
  component: lazyRouteComponent(() => import("./Overview"), "Overview"),
});
