import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { templates } from "./meterTemplates";

const guide = readFileSync("../docs/guides/start-from-a-template.md", "utf8");

/** Returns the bodies of the requests that the guide sends to a path. */
const bodies = (path: string) => [...guide.matchAll(new RegExp(`call POST ${path} -d '([^']+)'`, "g"))].map(([, body]) => JSON.parse(body!));

test("the guide and the form have the same templates", () => {
  expect(templates.map(({ definition }) => definition)).toEqual(bodies("/v1/meters"));
});

test("the guide sends the event of each template", () => {
  const events = new Set(templates.map(({ event }) => event));
  expect([...events].map((event) => ({ customer_id: "acme", ...event }))).toEqual(bodies("/v1/events"));
});
