import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { frame } from "../../routes";

export const start = createRoute({
  getParentRoute: () => frame,
  path: "/start",
  component: lazyRouteComponent(() => import("./Start"), "Start"),
});
