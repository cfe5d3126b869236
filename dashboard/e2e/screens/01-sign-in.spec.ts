// The sign-in screen as a visitor without a session, and the overview as the owner of the tenant.
import { expectFastPaint } from "../paint";
import { test } from "../user";

test("sign-in", async ({ visitor }) => {
  await visitor.page.goto("/sign-in");
  await visitor.judgeScreen("sign-in", "/sign-in", "form");
});

test("first paint of the overview", ({ user }) => expectFastPaint(user));
