import { isLosslessNumber, parse } from "lossless-json";

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
 * A line without steps repeats an earlier statement and is not verified. Steps without a formula are
 * taken as stated: usage, fields of the price, the lines of a provider's own price, and the units and
 * amounts that were billed before.
 */
export function verifyStatement(body: string): void {
  const message = parse(body) as Message;
  if (message?.type !== "usage.statement") throw new TypeError(`the type of the message is ${JSON.stringify(message?.type ?? "")}, not usage.statement`);
  for (const kind of ["meters", "adjustments"] as const) {
    for (const [i, line] of (message.data?.[kind] ?? []).entries()) verifyLine(line, `${kind}[${i}]`);
  }
}

interface Message {
  type?: string;
  data?: { meters?: Line[]; adjustments?: Line[] };
}

interface Line {
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

  /** Half to even. */
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
  parts: Breakdown;

  constructor(
    readonly data: StepData,
    readonly path: string,
    readonly line: Line,
    outer: Breakdown,
  ) {
    this.parts = new Breakdown(this, outer);
  }

  fail = (reason: string) => new StatementError(this.path, this.line.meter_slug, text(this.data.amount), undefined, reason);
  /** Returns the rate of the last part that has one. */
  lastRate = (name: string) => this.parts.steps.reduce((last, part) => part.parts.find(name)?.stated ?? last, ZERO);
  /** Requires that the step is the sum of its division among tiers or prices. */
  requireSum = (parts: Rational) => compare(this.line, this.path, this.data.amount, parts);

  /** Returns the exact amount to the decimals that the step states. */
  rounded(): Rational {
    const digits = this.data.rounded_to;
    if (digits == null) return this.exact;
    if (!/^[0-9]{1,2}$/.test(text(digits))) throw new StatementError(`${this.path}/rounded_to`, this.line.meter_slug, text(digits), undefined, "it is no number of decimals");
    return this.exact.round(Number(text(digits)));
  }
}

/** Verified steps. outer has those before the owner, which has these as parts. at is verified now. */
class Breakdown {
  steps: Step[] = [];
  at: Step | undefined;

  constructor(
    readonly owner?: Step,
    readonly outer?: Breakdown,
  ) {
    this.at = owner;
  }

  /** Returns the last step with the first of the names. */
  find(...names: string[]): Step | undefined {
    const name = names.find((name) => this.steps.some((s) => s.data.name === name));
    return this.steps.filter((s) => s.data.name === name).at(-1);
  }

  /** Returns a step that is required. */
  get(...names: string[]): Step {
    const step = this.find(...names);
    if (!step) throw this.at!.fail(`the step ${names[0]} is missing`);
    return step;
  }

  sum = (...names: string[]) => total(this.steps.filter((s) => names.includes(s.data.name!)).map((s) => s.stated));
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

function verifyLine(line: Line, path: string): void {
  if (!line.steps?.length) return;
  const b = new Breakdown();
  verifySteps(line.steps, path, b, line);
  compare(line, `${path}/usage`, line.usage, b.get("quantity", "reported_units", "total_usage", "usage").stated);
  compare(line, `${path}/unit_price`, line.unit_price, unitPrice(b));
  compare(line, `${path}/amount`, line.amount, b.get("amount_with_adjustments", "amount", "charge").stated);
}

function verifySteps(steps: (StepData | null)[], path: string, b: Breakdown, line: Line): void {
  for (const [i, step] of steps.entries()) {
    const { name = "", unit = "", ...data } = step ?? {};
    const s = new Step({ ...data, name }, `${path}/${name}[${i}]`, line, b);
    if (!formulas.has(name)) throw s.fail("the step is unknown, because this client is older than the statement");
    if (!["units", "packages", "percent", line.currency].includes(unit)) throw new StatementError(`${s.path}/unit`, line.meter_slug, unit, line.currency);
    s.exact = s.stated = decimal(line, s.path, data.amount);
    verifySteps(data.steps ?? [], s.path, s.parts, line);
    b.at = s;
    const formula = formulas.get(name);
    if (formula) {
      s.exact = formula(s, b);
      compare(line, s.path, data.amount, s.rounded());
    }
    b.steps.push(s);
  }
}

function compare(line: Line, path: string, stated: unknown, exact: Rational): void {
  if (decimal(line, path, stated).compare(exact) !== 0n) throw new StatementError(path, line.meter_slug, text(stated), exact.toString());
}

function decimal(line: Line, path: string, stated: unknown): Rational {
  const [number, sign, whole, fraction = ""] = /^(-?)([0-9]+)(?:\.([0-9]+))?$/.exec(text(stated)) ?? [];
  if (number === undefined) throw new StatementError(path, line.meter_slug, text(stated), undefined, "it is no plain decimal");
  return new Rational(BigInt(`${whole}${fraction}`) * (sign ? -1n : 1n), 10n ** BigInt(fraction.length));
}

/** Returns the sum of all parts. A step without parts is taken as stated. */
const sumOfParts: Formula = (s) => (s.parts.steps.length ? total(s.parts.steps.map((part) => part.stated)) : s.stated);

const unitsBeyondIncluded: Formula = (_, b) => b.units().stated.subtract(b.get("included_units").stated).max(ZERO);

const unitCharges: Formula = (s, b) => {
  if (b.find("percent")) return b.multiply("charged_units", "percent").divide(new Rational(100n));
  if (!s.parts.steps.length) return b.multiply("charged_units", "unit_price");
  b.get("charged_units").requireSum(total(s.parts.steps.map((tier) => tier.parts.sum("tier_units"))));
  return sumOfParts(s, b);
};

/** Returns the charged units between the bounds of the tier. With the model volume, the only tier has all of them. */
const tierUnits: Formula = (s, b) => {
  const tier = b.owner;
  if (!tier || !b.outer?.outer) throw s.fail("the step tier is missing");
  const charged = b.outer.outer.get("charged_units").stated;
  const above = decimal(s.line, `${tier.path}/above`, tier.data.above ?? "0");
  const upTo = tier.data.up_to == null ? charged : decimal(s.line, `${tier.path}/up_to`, tier.data.up_to);
  const isVolume = decimal(s.line, `${tier.path}/tier`, tier.data.tier ?? "0").compare(ONE) > 0n && !b.outer.steps.length;
  if (isVolume && charged.compare(above) > 0n && charged.compare(upTo) <= 0n) return charged;
  return charged.min(upTo).subtract(above).max(ZERO);
};

const fixedFees: Formula = (s, b) => {
  const counted = decimal(s.line, `${b.units().path}/event_count`, b.units().data.event_count ?? "0"); // 0 with reported_units, which have no number of events
  compare(s.line, `${s.path}/event_count`, s.data.event_count ?? "0", counted.max(ZERO));
  return b.get("fixed_fee").stated.multiply(counted.max(ZERO));
};

/** Returns the charge of a model, or the sum of the exact charges by dimension. */
const usageCharge: Formula = (_, b) => {
  if (b.find("package_price")) return b.multiply("packages", "package_price");
  if (b.find("charged_units")) return b.divide(b.get("unit_charges").stated, "per_units").add(b.sum("flat_fees", "fixed_fees"));
  const prices = b.steps.filter((s) => s.data.name === "dimension_charge" || s.data.name === "default_charge");
  if (!b.find("reported_units")) b.units().requireSum(total(prices.map((s) => s.parts.sum("matched_units"))).add(b.sum("unrated_units")));
  return total(prices.map((s) => s.exact));
};

/** Returns the charge of a price by dimension before rounding. */
const exactCharge: Formula = (s) => s.parts.get("usage_charge", "overage_charge").exact;

const boundedCharge: Formula = (_, b) => {
  const charge = b.get("base_price").stated.add(b.get("usage_charge", "overage_charge").stated);
  const least = b.find("minimum_charge")?.stated ?? charge;
  const raised = charge.max(least);
  return raised.min(b.find("maximum_charge")?.stated ?? raised);
};

const remainingAmount: Formula = (_, b) =>
  b.find("trial") ? ZERO : b.get("charge").stated.subtract(b.sum("unbilled_charge", "closed_charge", "only_reported", "billed_elsewhere"));

/** Returns the result of its own breakdown, or the sum of reported parts. */
const adjustment: Formula = (s, b) => s.parts.find("amount", "charge")?.stated ?? sumOfParts(s, b);

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

/** Each step that a statement can contain, as GET /v1/billing/explain names them. undefined: the step is taken as stated. */
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
  ["tier", (s) => s.parts.multiply("tier_units", "tier_unit_price")],
  ["tier_units", tierUnits],
  ["tier_unit_price", undefined],
  ["tier_flat_fee", undefined],
  ["dimension_charge", exactCharge],
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
  ["charge", (_, b) => b.get("exact_charge", "provider_charge").stated.subtract(b.sum("trial"))],
  ["unbilled_units", undefined],
  ["unbilled_charge", undefined],
  ["closed_units", undefined],
  ["closed_charge", undefined],
  ["only_reported_units", undefined],
  ["only_reported", undefined],
  ["elsewhere_units", sumOfParts],
  ["billed_elsewhere", sumOfParts],
  ["part", undefined],
  ["quantity", (_, b) => b.units().stated.subtract(b.sum("unbilled_units", "closed_units", "only_reported_units", "elsewhere_units"))],
  ["amount", remainingAmount],
  ["adjustment", adjustment],
  ["amount_with_adjustments", (_, b) => b.get("amount", "charge").stated.add(b.sum("adjustment"))],
]);
