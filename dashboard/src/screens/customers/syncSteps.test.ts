import { expect, test } from "vitest";
import type { SyncRun } from "../../api/syncs";
import { step } from "./syncSteps";

const run = (of: object) => ({ status: "running", error: "", lines: [], ...of }) as unknown as SyncRun;
const line = (report_id: string, state: string) => ({ report_id, state });

test("a running sync shows its step, its last error or its pause", () => {
  expect(step(run({ status: "requested" }))).toBe("The sync is recorded and starts in a moment.");
  expect(step(run({}))).toBe("The run reads the usage and plans the reports.");
  expect(step(run({ last_error: "the provider did not answer" }))).toBe("the provider did not answer");
  expect(step(run({ pause: { reason: "the receiver is being moved" } }))).toBe("Paused: the receiver is being moved");
});

test("a report with several lines is counted once", () => {
  const lines = [line("a", "accepted"), line("a", "accepted"), line("b", "sending")];
  expect(step(run({ lines }))).toBe("1 of 2 reports answered.");
  expect(step(run({ lines, last_error: "the webhook answered 503" }))).toBe("1 of 2 reports answered. The last attempt: the webhook answered 503");
});

test("a finished sync shows its result", () => {
  expect(step(run({ status: "succeeded" }))).toBe("There was nothing new to report.");
  expect(step(run({ status: "succeeded", lines: [line("a", "counted")] }))).toBe("1 of 1 report answered.");
  expect(step(run({ status: "failed", error: "save another secret", lines: [line("a", "planned")] }))).toBe("save another secret");
});
