import { isLosslessNumber, parse } from "lossless-json";
import { expectedUnit, forms, minorDigits } from "./statement-forms.js";

/** The first difference between a statement and its recomputation. */
export class StatementError extends Error {
  override name = "StatementError";

  constructor(
    /** Such as meters[0]/unit_charges[6]/tier[1], with the positions in steps. */
    readonly path: string,
    readonly meterSlug: string,
    readonly stated: string,
    /** Undefined if the statement lacks a step, or has an unknown one. */
    readonly recomputed?: string,
    /** Why nothing was recomputed. */
    readonly reason = "",
  ) {
    super(`${path} (${meterSlug}) is ${stated}, but ${recomputed === undefined ? `cannot be recomputed: ${reason}` : `recomputed it is ${recomputed}`}`);
  }
}

/**
 * Recomputes each amount of a usage.statement message from the steps of its line. Throws a
 * StatementError for the first difference, and for a step that only a later version of the client
 * knows. Verify the signature of the message first.
 *
 * The rules are in docs/api/clients.md: the order of steps, the unit, the decimals and the number of
 * events of each step, and the formulas. A line without steps repeats an earlier statement and is not
 * verified. Steps without a formula are taken as stated: usage, fields of the price, the lines of a
 * provider's own price, and the units and amounts that were billed before.
 */
export function verifyStatement(body: string): void {
  const message = parse(body) as Message;
  if (message?.type !== "usage.statement") throw new TypeError(`the type of the message is ${JSON.stringify(message?.type ?? "")}, not usage.statement`);
  for (const kind of ["meters", "adjustments"] as const) {
    const subjects = new Set<string>();
    for (const [i, line] of (message.data?.[kind] ?? []).entries()) {
      const subject = JSON.stringify([line.meter_id, line.period?.start]);
      if (subjects.has(subject)) {
        throw new StatementError(`${kind}[${i}]/meter_id`, line.meter_slug, text(line.meter_id), undefined, "an earlier line has the same meter and period");
      }
      subjects.add(subject);
      verifyLine(line, kind, `${kind}[${i}]`);
    }
  }
}

interface Message {
  type?: string;
  data?: { meters?: Line[]; adjustments?: Line[] };
}

interface Line {
  period?: { start?: string }; // only of an adjustment
  meter_id?: string;
  meter_slug: string;
  currency: string;
  usage?: unknown;
  unit_price?: unknown;
  amount?: unknown;
  steps?: (StepData | null)[];
}

interface StepData {
  name?: string;
  amount?: unknown;
  unit?: string;
  rounded_to?: unknown;
  event_count?: unknown;
  dimension_price?: unknown;
  tier?: unknown;
  above?: unknown;
  up_to?: unknown;
  steps?: (StepData | null)[];
}

/** An exact number: above / below, which is positive. */
class Rational {
  constructor(
    readonly above: bigint,
    readonly below = 1n,
  ) {}

  add = (x: Rational) => new Rational(this.above * x.below + x.above * this.below, this.below * x.below);
  subtract = (x: Rational) => this.add(new Rational(-x.above, x.below));
  multiply = (x: Rational) => new Rational(this.above * x.above, this.below * x.below);
  /** Divides by a positive number. */
  divide = (x: Rational) => new Rational(this.above * x.below, this.below * x.above);
  compare = (x: Rational) => this.above * x.below - x.above * this.below;
  max = (x: Rational) => (this.compare(x) < 0n ? x : this);
  min = (x: Rational) => (this.compare(x) > 0n ? x : this);
  floor = () => (this.above - (((this.above % this.below) + this.below) % this.below)) / this.below;
  ceil = () => -new Rational(-this.above, this.below).floor();

  /** Returns the number, rounded half to even to the number of digits after the decimal point. */
  round(digits: number): Rational {
    const scale = 10n ** BigInt(digits);
    const scaled = new Rational(this.above * scale, this.below);
    let whole = scaled.floor();
    const half = scaled.subtract(new Rational(whole)).compare(new Rational(1n, 2n));
    if (half > 0n || (half === 0n && whole % 2n !== 0n)) whole += 1n;
    return new Rational(whole, scale);
  }

  /** Writes at most 40 decimals. */
  toString(): string {
    const whole = this.round(40).above;
    const digits = (whole < 0n ? -whole : whole).toString().padStart(41, "0");
    return `${whole < 0n ? "-" : ""}${digits.slice(0, -40)}.${digits.slice(-40)}`.replace(/\.?0*$/, "");
  }
}

const ZERO = new Rational(0n);
const ONE = new Rational(1n);
const text = (value: unknown) => (isLosslessNumber(value) ? value.toString() : String(value ?? ""));

/** A step that is verified. exact is its amount before rounding. */
class Step {
  stated = ZERO;
  exact = ZERO;
  events = ZERO;
  parts: Breakdown;

  constructor(
    readonly data: StepData,
    readonly path: string,
    readonly line: Line,
    outer: Breakdown,
  ) {
    this.parts = new Breakdown(this, outer);
  }

  fail = (reason: string, field?: keyof StepData) =>
    new StatementError(field ? `${this.path}/${field}` : this.path, this.line.meter_slug, text(this.data[field ?? "amount"] ?? "absent"), undefined, reason);
  /** Returns a number of the step other than its amount. A missing number is 0. */
  number = (field: keyof StepData) => decimal(this.line, `${this.path}/${field}`, this.data[field] ?? "0");
  compare = (field: keyof StepData, exact: Rational) => compare(this.line, `${this.path}/${field}`, this.data[field] ?? "0", exact);
  /** Returns the rate of the last part that has one. */
  lastRate = (name: string) => this.parts.steps.reduce((last, part) => part.parts.find(name)?.stated ?? last, ZERO);
  /** Requires that the step is the sum of its division among tiers or prices. */
  requireSum = (parts: Rational) => compare(this.line, this.path, this.data.amount, parts);

  /** Returns the number of the step's tier, from 1. */
  tierNumber(): Rational {
    const number = this.number("tier");
    if (number.compare(ONE) < 0n) throw this.fail("tiers are numbered from 1", "tier");
    return number;
  }

  /** Returns the exact amount, rounded half to even as rounded_to states. Throws if rounded_to itself is wrong. */
  rounded(b: Breakdown): Rational {
    const stated = text(this.data.rounded_to ?? "absent");
    const expected = this.expectedDecimals(b, stated);
    if (stated !== expected) throw new StatementError(`${this.path}/rounded_to`, this.line.meter_slug, stated, expected);
    // exact_charge has as many decimals as a rounded quotient in it.
    const by = this.data.name === "exact_charge" ? text(b.get("usage_charge", "overage_charge").data.rounded_to ?? "absent") : stated;
    return by === "absent" ? this.exact : this.exact.round(Number(by));
  }

  /** Returns the rounded_to of the step, or "absent" if the step is not rounded. */
  private expectedDecimals(b: Breakdown, stated: string): string {
    switch (this.data.name) {
      case "charge":
        return b.find("provider_charge") ? "absent" : minorDigits(this.line.currency);
      case "reported_units": // as the provider decides
        if (!/^[0-9]{1,2}$/.test(stated)) throw this.fail("it must be a number of decimals from 0 to 99", "rounded_to");
        return stated;
      case "elsewhere_units":
        return text((b.find("late_usage") ? undefined : b.find("reported_units")?.data.rounded_to) ?? "absent");
      case "usage_charge":
      case "dimension_charge":
      case "default_charge":
        if (stated !== "absent" && !/^(1[6-9]|[2-9][0-9])$/.test(stated)) throw this.fail("a quotient has 16 to 99 decimals", "rounded_to");
        return stated;
    }
    return "absent";
  }

  /** Returns the number of events, or undefined if it is not recomputed. Returns 0 for a step that has no number of events. */
  expectedEvents(b: Breakdown): Rational | undefined {
    switch (this.data.name) {
      case "usage":
      case "late_usage":
      case "dimension_units":
        return undefined;
      case "total_usage":
        return b.sumEvents("usage", "late_usage");
      case "matched_units":
      case "unrated_units":
        return this.parts.sumEvents("dimension_units");
      case "fixed_fees":
        return b.units().events.max(ZERO);
    }
    return ZERO;
  }
}

/** Verified steps. outer has those before the owner, which has these as parts. */
class Breakdown {
  steps: Step[] = [];

  constructor(
    readonly owner?: Step,
    readonly outer?: Breakdown,
  ) {}

  /** Returns the last step with the first of the names. */
  find(...names: string[]): Step | undefined {
    const name = names.find((name) => this.steps.some((s) => s.data.name === name));
    return this.steps.filter((s) => s.data.name === name).at(-1);
  }

  /** Returns a step that the forms require. */
  get = (...names: string[]): Step => this.find(...names)!;
  named = (...names: string[]) => this.steps.filter((s) => names.includes(s.data.name!));
  sum = (...names: string[]) => total(this.named(...names).map((s) => s.stated));
  sumEvents = (...names: string[]) => total(this.named(...names).map((s) => s.events));
  multiply = (name: string, by: string) => this.get(name).stated.multiply(this.get(by).stated);
  /** Returns the step with the units that the price charges. */
  units = () => this.get("matched_units", "reported_units", "total_usage", "usage");

  /** Divides by a step. A step that is absent divides by 1. */
  divide(x: Rational, name: string): Rational {
    const by = this.find(name);
    if (by && by.stated.compare(ZERO) <= 0n) throw by.fail("it must be above 0");
    return by ? x.divide(by.stated) : x;
  }
}

const total = (amounts: Rational[]) => amounts.reduce((sum, x) => sum.add(x), ZERO);

function verifyLine(line: Line, kind: string, path: string): void {
  if (!line.steps?.length) return;
  const b = new Breakdown();
  verifySteps(kind, line.steps, path, b, line);
  compare(line, `${path}/usage`, line.usage, b.get("quantity", "reported_units", "total_usage", "usage").stated);
  compare(line, `${path}/unit_price`, line.unit_price, unitPrice(b));
  compare(line, `${path}/amount`, line.amount, b.get("amount", "charge").stated);
}

/** Recomputes the steps of a line, or the parts of a step. form is the kind of the line, or the name of that step. */
function verifySteps(form: string, steps: (StepData | null)[], path: string, b: Breakdown, line: Line): void {
  const found = steps.map((step, i) => new Step({ ...step, name: step?.name ?? "" }, `${path}/${step?.name ?? ""}[${i}]`, line, b));
  const names = found.map((s) => s.data.name + (s.data.steps?.length ? ":" : ""));
  for (const s of found) {
    if (formulas.has(s.data.name!)) continue;
    const reason = "the step is unknown, because this client is older than the statement";
    throw new StatementError(s.path, line.meter_slug, text(s.data.amount), undefined, reason);
  }
  if (!forms.get(form)!.test(names.map((name) => `${name};`).join(""))) {
    throw new StatementError(`${path}/steps`, line.meter_slug, names.join(";"), undefined, "a step is missing, repeated or in another order");
  }
  for (const s of found) {
    const { name = "", unit = "" } = s.data;
    const expected = expectedUnit(name, b.owner?.data.unit ?? "", line.currency);
    if (unit !== expected) throw new StatementError(`${s.path}/unit`, line.meter_slug, unit, expected);
    s.exact = s.stated = decimal(line, s.path, s.data.amount);
    s.events = s.number("event_count");
    if (s.data.steps?.length) verifySteps(name, s.data.steps, s.path, s.parts, line);
    const formula = formulas.get(name);
    if (formula) s.exact = formula(s, b);
    compare(line, s.path, s.data.amount, s.rounded(b));
    const events = s.expectedEvents(b);
    if (events) s.compare("event_count", events);
    b.steps.push(s);
  }
}

function compare(line: Line, path: string, stated: unknown, exact: Rational): void {
  if (decimal(line, path, stated).compare(exact) !== 0n) throw new StatementError(path, line.meter_slug, text(stated), exact.toString());
}

function decimal(line: Line, path: string, stated: unknown): Rational {
  const [number, sign, whole, fraction = ""] = /^(-?)([0-9]+)(?:\.([0-9]+))?$/.exec(text(stated)) ?? [];
  if (number === undefined) throw new StatementError(path, line.meter_slug, text(stated), undefined, "it is not a plain decimal");
  return new Rational(BigInt(`${whole}${fraction}`) * (sign ? -1n : 1n), 10n ** BigInt(fraction.length));
}

/** Returns the sum of all parts, which is 0 without parts. */
const sumOfParts: Formula = (s) => total(s.parts.steps.map((part) => part.stated));

const unitsBeyondIncluded: Formula = (_, b) => b.units().stated.subtract(b.get("included_units").stated).max(ZERO);

const unitCharges: Formula = (s, b) => {
  if (b.find("percent")) return b.multiply("charged_units", "percent").divide(new Rational(100n));
  if (!s.parts.steps.length) return b.multiply("charged_units", "unit_price");
  b.get("charged_units").requireSum(total(s.parts.steps.map((tier) => tier.parts.sum("tier_units"))));
  return sumOfParts(s, b);
};

/**
 * Returns the charged units within the bounds of the tier. A volume price charges all units in the tier that they
 * reach. A statement then lists only this tier, and its number can be above 1.
 */
const tierUnits: Formula = (_, b) => {
  const tier = b.owner!;
  const charged = b.outer!.outer!.get("charged_units").stated;
  const inTier = tier.data.up_to == null ? charged : charged.min(tier.number("up_to"));
  const units = inTier.subtract(tier.number("above")).max(ZERO);
  const isFirst = tier.tierNumber().compare(ONE) === 0n;
  if (!isFirst && units.compare(ZERO) === 0n) throw tier.fail("the charged units do not reach the tier");
  return !isFirst && !b.outer!.steps.length && inTier.compare(charged) === 0n ? charged : units;
};

/** Returns the units of a tier times its unit price. Checks that the tier follows the previous tier without a gap. */
const tierCharge: Formula = (s, b) => {
  const number = s.tierNumber();
  const previous = b.find("tier");
  if (previous) {
    s.compare("tier", previous.tierNumber().add(ONE));
    s.compare("above", previous.number("up_to"));
  } else if (number.compare(ONE) === 0n) {
    s.compare("above", ZERO);
  }
  return s.parts.multiply("tier_units", "tier_unit_price");
};

/**
 * Returns the stated fee of a tier. Checks that unit_charges has the tier, and that no two fees belong to one tier.
 */
const tierFlatFee: Formula = (s, b) => {
  const number = s.tierNumber();
  const previous = b.find("tier_flat_fee");
  if (previous && number.compare(previous.tierNumber()) <= 0n) throw s.fail("the fees are not in the order of the tiers", "tier");
  const tiers = b.outer!.get("unit_charges").parts.steps;
  if (!tiers.some((tier) => tier.tierNumber().compare(number) === 0n)) throw s.fail("unit_charges has no such tier", "tier");
  return s.stated;
};

const fixedFees: Formula = (_, b) => b.get("fixed_fee").stated.multiply(b.units().events.max(ZERO));

/** Returns the charge of a model, or the sum of the exact charges by dimension. */
const usageCharge: Formula = (_, b) => {
  if (b.find("package_price")) return b.multiply("packages", "package_price");
  if (b.find("charged_units")) return b.divide(b.get("unit_charges").stated, "per_units").add(b.sum("flat_fees", "fixed_fees"));
  const prices = b.named("dimension_charge", "default_charge");
  const of = b.units();
  const units = total(prices.map((s) => s.parts.sum("matched_units"))).add(b.sum("unrated_units"));
  // Rounding can leave less than reported_units.
  if (of.data.name !== "reported_units" || units.compare(of.stated) > 0n) of.requireSum(units);
  of.compare("event_count", total(prices.map((s) => s.parts.sumEvents("matched_units"))).add(b.sumEvents("unrated_units")));
  return total(prices.map((s) => s.exact));
};

/** Returns the exact charge of a price by dimension. Checks that each price is listed once. */
const dimensionCharge: Formula = (s, b) => {
  const previous = b.find("dimension_charge")?.number("dimension_price") ?? ZERO;
  if (s.number("dimension_price").compare(previous) <= 0n) throw s.fail("the prices are not in the order of their numbers", "dimension_price");
  return exactCharge(s, b);
};

/** Returns the charge of a price by dimension before rounding. */
const exactCharge: Formula = (s) => s.parts.get("usage_charge", "overage_charge").exact;

/**
 * Returns the base price and the usage charge, limited by the minimum and the maximum charge. It uses the usage charge
 * before rounding.
 */
const boundedCharge: Formula = (_, b) => {
  const charge = b.get("base_price").stated.add(b.get("usage_charge", "overage_charge").exact);
  const least = b.find("minimum_charge")?.stated ?? charge;
  const raised = charge.max(least);
  return raised.min(b.find("maximum_charge")?.stated ?? raised);
};

const remainingAmount: Formula = (_, b) =>
  b.find("trial") ? ZERO : b.get("charge").stated.subtract(b.sum("closed_charge", "only_reported", "billed_elsewhere"));

/**
 * Returns the sum of all parts. If a provider's own price charges the usage, a statement has only the sum, which is
 * then returned as stated.
 */
const billedElsewhere: Formula = (s, b) =>
  !s.parts.steps.length && b.find("provider_charge") && !b.find("late_usage") ? s.stated : sumOfParts(s, b);

/** Returns the rate of the last charged unit; 0 without such units, and by dimension. */
function unitPrice(b: Breakdown): Rational {
  const rate = b.find("overage_rate")?.stated ?? b.find("provider_charge")?.lastRate("price_rate");
  if (rate) return rate;
  if (b.sum("charged_units").compare(ZERO) === 0n) return ZERO;
  const percent = b.find("percent");
  if (percent) return percent.stated.divide(new Rational(100n));
  const price = b.find("package_price", "unit_price")?.stated ?? b.get("unit_charges").lastRate("tier_unit_price");
  return b.divide(price, "per_units").round(12);
}

/** Recomputes a step from the steps before it, in b, and from its parts. */
type Formula = (s: Step, b: Breakdown) => Rational;

/** Each step that a statement can contain. undefined: the step is taken as stated. */
const formulas = new Map<string, Formula | undefined>([
  ["usage", undefined],
  ["late_usage", undefined],
  ["total_usage", (_, b) => b.sum("usage", "late_usage")],
  ["reported_units", (_, b) => b.sum("usage", "late_usage")],
  ["included_units", undefined],
  ["overage_units", unitsBeyondIncluded],
  ["overage_rate", undefined],
  ["overage_charge", (_, b) => b.multiply("overage_units", "overage_rate")],
  ["charged_units", unitsBeyondIncluded],
  ["unit_price", undefined],
  ["package_size", undefined],
  ["packages", (_, b) => new Rational(b.divide(b.get("charged_units").stated, "package_size").ceil())],
  ["package_price", undefined],
  ["percent", undefined],
  ["unit_charges", unitCharges],
  ["per_units", undefined],
  ["flat_fees", sumOfParts],
  ["fixed_fee", undefined],
  ["fixed_fees", fixedFees],
  ["usage_charge", usageCharge],
  ["tier", tierCharge],
  ["tier_units", tierUnits],
  ["tier_unit_price", undefined],
  ["tier_flat_fee", tierFlatFee],
  ["dimension_charge", dimensionCharge],
  ["default_charge", exactCharge],
  ["matched_units", sumOfParts],
  ["unrated_units", sumOfParts],
  ["dimension_units", undefined],
  ["base_price", undefined],
  ["minimum_charge", undefined],
  ["maximum_charge", undefined],
  ["exact_charge", boundedCharge],
  ["provider_charge", sumOfParts],
  ["price_line", undefined], // rounded by the rules of the provider
  ["priced_units", undefined],
  ["price_rate", undefined],
  ["trial", (_, b) => b.get("exact_charge", "provider_charge").stated],
  ["charge", (_, b) => (b.find("trial") ? ZERO : b.get("exact_charge", "provider_charge").exact)],
  ["closed_units", undefined],
  ["closed_charge", undefined],
  ["only_reported_units", undefined],
  ["only_reported", undefined],
  ["elsewhere_units", sumOfParts],
  ["billed_elsewhere", billedElsewhere],
  ["part", undefined],
  ["quantity", (_, b) => b.units().stated.subtract(b.sum("closed_units", "only_reported_units", "elsewhere_units"))],
  ["amount", remainingAmount],
]);
