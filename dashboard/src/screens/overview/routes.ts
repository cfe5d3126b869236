import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { frame } from "../../routes";

export const overview = createRoute({
  getParentRoute: () => frame,
  path: "/overview",
  component: lazyRouteComponent(() => import("./Overview"), "Overview"),
});
