// The API reference at /docs (Swagger UI), as a visitor without a session that authorizes with an API key.
import { system } from "./system";
import { expect, test } from "./user";

test("the page /docs lists the operations, authorizes, and executes one", async ({ visitor: { page }, request }) => {
  const { paths, webhooks } = await (await request.get("/openapi.json")).json();
  const operations = [paths, webhooks].flatMap(Object.values).flatMap(Object.keys);
  await page.goto("/docs");
  await expect(page.locator(".opblock")).toHaveCount(operations.length);

  await page.getByRole("button", { name: "Authorize" }).first().click();
  await page.getByLabel("Value").first().fill(system.key);
  await page.getByRole("button", { name: "Apply credentials" }).first().click();
  await page.getByRole("button", { name: "Close" }).first().click();

  const operation = page.locator('[id$="-get-tenant"]');
  await operation.getByRole("button", { name: "Get the tenant" }).click();
  await operation.getByRole("button", { name: "Execute" }).click();
  const response = operation.locator(".live-responses-table .response").first();
  await expect(response).toContainText(/^\s*200/);
  await expect(response).toContainText('"ten_');
});
