import { measures } from "./system";
import { expect, type User } from "./user";

/**
 * Prints the times until the first paint of the overview. The fastest of five attempts, which excludes other load of
 * the machine, takes at most a second.
 */
export async function expectFastPaint(user: User) {
  const times: number[] = [];
  for (let attempt = 0; attempt < 5; attempt++) {
    await user.open("/overview");
    const painted = await user.page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
    times.push((await painted.jsonValue()) ?? Infinity);
  }
  console.log("first paint of the overview, in ms:", times.map(Math.round));
  if (measures) expect(Math.min(...times)).toBeLessThan(1_000);
}
