import { expect, test } from "vitest";
import { compare, decimals, difference, excess, grouped, isAmount, minorDigits, shares, shortest, sum, wrongAmount, wrongWhole } from "./decimal";

test("every digit is shown", () => {
  expect(grouped("1284402.75")).toBe("1,284,402.75");
  expect(grouped("0.000000000001")).toBe("0.000000000001");
  expect(grouped("900719925474099312345.100")).toBe("900,719,925,474,099,312,345.100");
  expect(grouped("-1234")).toBe("−1,234");
  expect(grouped("999")).toBe("999");
});

test("zeros are appended up to the decimals of a currency, and no digit is removed", () => {
  expect(grouped("30", 2)).toBe("30.00");
  expect(grouped("30.5", 2)).toBe("30.50");
  expect(grouped("0.125", 2)).toBe("0.125");
  expect([minorDigits("USD"), minorDigits("JPY"), minorDigits("KWD")]).toEqual([2, 0, 3]);
});

test("text that is not a decimal is refused", () => {
  for (const text of ["", "1e9", "NaN", "1.", ".5", "+1"]) expect(() => grouped(text)).toThrow("is not a decimal");
});

test("sums are exact", () => {
  expect(sum(["0.1", "0.2"])).toBe("0.3");
  expect(sum(["30", "0.80"])).toBe("30.80");
  expect(sum(["9007199254740993", "0.000000000001"])).toBe("9007199254740993.000000000001");
  expect(sum(["-0.05", "0.02"])).toBe("-0.03");
  expect(sum([])).toBe("0");
});

test("shares are relative to the largest value", () => {
  expect(shares(["0", "5", "10", "-1"])).toEqual([0, 0.5, 1, 0]);
  expect(shares(["0", "0"])).toEqual([0, 0]);
});

test("zeros at the end are not counted as decimals", () => {
  expect(["30", "30.10", "30.00", "9.4046875"].map(decimals)).toEqual([0, 1, 0, 7]);
});

test("differences are exact, and an excess is at least 0", () => {
  expect(excess("1250", "1000.5")).toBe("249.5");
  expect(excess("1000", "1250")).toBe("0");
  expect([difference("0.3", "0.1"), difference("1", "2.50")]).toEqual(["0.2", "-1.5"]);
});

test("zeros at the end are removed from fractions only", () => {
  expect(["30.00", "30.10", "100", "0.0"].map(shortest)).toEqual(["30", "30.1", "100", "0"]);
});

test("isAmount accepts the amounts that the API accepts", () => {
  expect(["0", "25.50", "1000"].filter(isAmount)).toHaveLength(3);
  expect(["", "1,000", "-1", "1e3", ".5", "2.", "007", "00.5"].filter(isAmount)).toHaveLength(0);
});

test("a number in an ambiguous notation is refused", () => {
  const plain = "Must be a number such as 1000.50, without thousands separators";
  expect(["1,000.50", "12,50", "1.000,50", "1 000", "1\u00a0000.5", "1'000", "1_000", "$5", "1e3", ".5", "5.", "+5", "007", "٣", "abc"].map(wrongAmount)).toEqual(Array(15).fill(plain));
  expect(["-1", "−0.5"].map(wrongAmount)).toEqual(["Must be 0 or more", "Must be 0 or more"]);
  expect(["", "0", "0.02", "1000.50", "123456789012345678901234567890.000000000001"].map(wrongAmount)).toEqual(Array(5).fill(undefined));
});

test("a whole number consists of digits only", () => {
  expect(["0", "72"].map(wrongWhole)).toEqual([undefined, undefined]);
  expect(["", "1.5", "-1", "1e3", "1,000", "12345678901"].map(wrongWhole)).toEqual(Array(6).fill("Must be a whole number such as 72"));
});

test("decimals are compared exactly", () => {
  expect([compare("1", "1.0"), compare("9007199254740993", "9007199254740992"), compare("2", "10")]).toEqual([0, 1, -1]);
});
