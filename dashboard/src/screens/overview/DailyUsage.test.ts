import { expect, test } from "vitest";
import { comparedUsage } from "./DailyUsage";

test("each day is compared with the day thirty days before, also when the clocks change", () => {
  const used = (start: string, usage: string) => ({ start, end: start, usage });
  const meter = {
    meter_id: "mtr_1",
    meter_slug: "calls",
    total: "7",
    days: [used("2026-10-10T22:00:00Z", "1"), used("2026-10-24T22:00:00Z", "2"), used("2026-11-09T23:00:00Z", "4")],
  };
  const { starts, series, former } = comparedUsage(meter, "2026-09-11T22:00:00Z", "Europe/Zurich"); // 12 September in Zurich
  expect(starts[0]).toBe("2026-10-11T22:00:00.000Z");
  expect(starts[29]).toBe("2026-11-09T23:00:00.000Z");
  const [last, before] = [series[0]!, former!].map(({ values }) => values.flatMap((value, index) => (value === "0" ? [] : [[index, value]])));
  expect(last).toEqual([[13, "2"], [29, "4"]]);
  expect(before).toEqual([[29, "1"]]);
});
