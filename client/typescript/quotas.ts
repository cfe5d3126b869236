import type { Client } from "openapi-fetch";
import { serialize } from "./exact.js";
import { asError, ProblemError, problemOf, unencodable } from "./problems.js";
import { runReserved, type HeldReservation, type ReserveRequest } from "./reservations.js";
import type { components, paths } from "./schema.gen.js";

type QuotaCheck = components["schemas"]["QuotaCheck"];
type QuotaDecision = components["schemas"]["QuotaDecision"];

const MAX_CACHED = 10_000; // customers, meters and groups in the cache

/** Times are in milliseconds. */
export interface QuotasOptions {
  /** The decision while the service does not answer. */
  onError: "allow" | "deny";
  /** The age up to which check uses an earlier answer of the service. With 0, each check is a request. */
  maxStaleness: number;
  /** The time in which the service must answer check or reserve, repeats of reserve included: 2,000. */
  timeout?: number;
  /** The time in which a settlement is repeated until the service answers: 30,000. */
  settleTimeout?: number;
  /** Called with the error of each request that the service did not answer. It is logged by default. */
  onFailure?: (error: Error) => void;
}

/** The decision about a check. failure is the error for which onError has decided. */
export type CheckResult = Partial<QuotaDecision> & Pick<QuotaDecision, "allowed"> & { failure?: Error };

/** Checks and reserves usage before it happens. */
export class Quotas {
  readonly #client: Client<paths>;
  readonly #options: Required<QuotasOptions>;
  readonly #cache = new Map<string, CachedQuota>();

  constructor(client: Client<paths>, options: QuotasOptions) {
    if (options.onError !== "allow" && options.onError !== "deny") throw new TypeError("onError must be allow or deny");
    if (!(options.maxStaleness >= 0)) throw new TypeError("maxStaleness must be zero or more");
    this.#client = client;
    this.#options = { timeout: 2_000, settleTimeout: 30_000, onFailure: logFailure, ...options };
  }

  /**
   * Decides whether a customer may use an amount. It throws a ProblemError only if the service refuses the request for
   * its content, such as an unknown meter.
   *
   * An answer from the cache counts the amounts that this Quotas has allowed since as used. The cache allows an amount
   * only if every quota has as much left, and denies an amount only if the service has denied it, or less. check asks
   * the service otherwise.
   */
  async check(check: QuotaCheck): Promise<CheckResult> {
    const amount = unitsOf(check.amount);
    const entry = this.#options.maxStaleness > 0 && amount !== undefined ? this.#entry(check) : undefined;
    const cached = entry?.decide(amount!, this.#options.maxStaleness);
    if (cached) return cached;
    const request = entry?.startRequest();
    try {
      const answer = await this.#ask(check);
      entry?.storeAnswer(request!, amount!, answer);
      return answer;
    } catch (error) {
      if ((error instanceof ProblemError && error.isRefused) || unencodable(check)) {
        entry?.storeAnswer(request!, 0n);
        throw error;
      }
      const failure = asError(error);
      this.#options.onFailure(failure);
      const allowed = this.#options.onError === "allow";
      entry?.storeAnswer(request!, allowed ? amount! : 0n);
      return { allowed, failure };
    }
  }

  /**
   * Reserves usage, calls work, and ends the reservation, even if work throws: it settles the reservation with the
   * events that work has recorded, or releases it if there are none. It returns the result of work. It throws
   * QuotaExceededError, UnavailableError, SettleError, a ProblemError of a refused request, or the error of work.
   *
   * A request without an id gets one, so that a repeat reserves nothing twice. While work runs, the reservation is
   * extended each time half of expires_in has passed. A settlement is repeated until the service answers or
   * settleTimeout is over. With onError allow, work is called without a reservation if the service does not answer; the
   * events are stored all the same.
   */
  reserve<Result>(request: ReserveRequest, work: (reservation: HeldReservation) => Promise<Result>): Promise<Result> {
    return runReserved(this.#client, this.#options, request, work);
  }

  async #ask(check: QuotaCheck): Promise<QuotaDecision> {
    const signal = AbortSignal.timeout(this.#options.timeout);
    const { data, error, response } = await this.#client.POST("/v1/quotas/check", { body: { checks: [check] }, signal });
    const [decision] = data?.data ?? [];
    if (!decision) throw problemOf(response, error);
    return decision;
  }

  /** Returns the entry of a check, and creates it if it is missing. Returns undefined if the cache is full or the group is no JSON. */
  #entry({ customer, meter, group }: QuotaCheck): CachedQuota | undefined {
    if (unencodable(group)) return undefined;
    const key = JSON.stringify([customer, meter, serialize(sorted(group))]);
    let entry = this.#cache.get(key);
    if (entry) return entry;
    if (this.#cache.size >= MAX_CACHED) this.#removeStale();
    if (this.#cache.size >= MAX_CACHED) return undefined;
    this.#cache.set(key, (entry = new CachedQuota()));
    return entry;
  }

  #removeStale(): void {
    for (const [key, entry] of this.#cache) if (entry.isStale(this.#options.maxStaleness)) this.#cache.delete(key);
  }
}

/** The latest answer about a customer, a meter and a group. Amounts are in units of 10⁻¹². */
class CachedQuota {
  #allowed = 0n; // amounts that were allowed since the entry exists
  #pending = 0; // requests without an answer
  #sentAt = -Infinity; // of the answer's request
  #answer: { decision: QuotaDecision; amount: bigint; before: bigint } | undefined; // before: allowed, at sentAt

  isStale(maxStaleness: number): boolean {
    return this.#pending === 0 && performance.now() - this.#sentAt >= maxStaleness;
  }

  decide(amount: bigint, maxStaleness: number): CheckResult | undefined {
    if (!this.#answer || performance.now() - this.#sentAt >= maxStaleness) return undefined;
    const { decision, amount: checked, before } = this.#answer;
    if (decision.resets_at && Date.now() >= Date.parse(decision.resets_at)) return undefined;
    if (!decision.allowed) return amount >= checked ? decision : undefined;
    const since = this.#allowed - before;
    const [remaining, used] = [unitsOf(decision.remaining), unitsOf(decision.used)];
    if (decision.remaining === null) {
      this.#allowed += amount;
      return { ...decision, exceeded: false };
    }
    if (remaining === undefined || used === undefined || amount > remaining - since) return undefined;
    this.#allowed += amount;
    return { ...decision, exceeded: false, remaining: textOf(remaining - since), used: textOf(used + since) };
  }

  startRequest(): { sentAt: number; before: bigint } {
    this.#pending++;
    return { sentAt: performance.now(), before: this.#allowed };
  }

  /**
   * Ends a request and stores its answer. Without an answer, amount is the amount that onError has allowed, or 0. An
   * answer to an earlier request does not replace the answer to a later one.
   */
  storeAnswer({ sentAt, before }: { sentAt: number; before: bigint }, amount: bigint, answer?: QuotaDecision): void {
    this.#pending--;
    if (!answer || answer.allowed) this.#allowed += amount;
    if (!answer || sentAt < this.#sentAt) return;
    this.#sentAt = sentAt;
    this.#answer = { decision: answer, amount, before };
  }
}

const PLAIN = /^(-?)(\d{1,40})(?:\.(\d{1,12}))?$/;

/** Returns nothing for null, and for a text that is not plain digits with at most 12 decimals. */
function unitsOf(amount: string | null): bigint | undefined {
  const [, sign = "", whole = "", fraction = ""] = PLAIN.exec(amount ?? "") ?? [];
  return whole ? BigInt(sign + whole + fraction.padEnd(12, "0")) : undefined;
}

function textOf(units: bigint): string {
  const digits = String(units < 0n ? -units : units).padStart(13, "0");
  const text = `${digits.slice(0, -12)}.${digits.slice(-12)}`.replace(/\.?0+$/, "");
  return units < 0n ? `-${text}` : text;
}

/** A copy of a group, in which the order of the properties is the same for each text of the group. */
const sorted = (group: object = {}) => Object.fromEntries(Object.entries(group).sort(([a], [b]) => (a < b ? -1 : 1)));

function logFailure(error: Error): void {
  console.warn(`quota request failed: ${error.message}`);
}
