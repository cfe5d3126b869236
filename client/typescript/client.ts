import createFetchClient, { type Client, type ClientOptions } from "openapi-fetch";
import { exactAnswers, serialize } from "./exact.js";
import type { components, paths } from "./schema.gen.js";

export { BufferFullError, ClosedError, Recorder, UnsentError, type RecorderOptions } from "./recorder.js";
export { ProblemError } from "./problems.js";
export { Quotas, type CheckResult, type QuotasOptions } from "./quotas.js";
export {
  QuotaExceededError,
  ReservationEventError,
  UnavailableError,
  SettleError,
  type HeldReservation,
  type ReserveRequest,
} from "./reservations.js";
export { parseExactly } from "./exact.js";
export { StatementError, verifyStatement } from "./statements.js";
export type { components, operations, paths } from "./schema.gen.js";

/** A body of the API, such as Schema<"UsageResult">. */
export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

export interface Options extends Omit<ClientOptions, "bodySerializer"> {
  baseUrl: string;
  /** Sent with every request; without it, authenticate by a middleware or headers. */
  apiKey?: string;
}

/**
 * A typed client of the API. Amounts and quantities are strings that hold every
 * digit, in bodies and in answers: on the wire they are JSON numbers, which
 * JavaScript would round. Answers that are read as a stream or as text, such as
 * a large export, pass unchanged. parseExactly parses such a text, and also keeps
 * the digits of numbers in properties.
 */
export function createClient({ apiKey, ...options }: Options): Client<paths> {
  const client = createFetchClient<paths>({
    querySerializer: { object: { style: "form", explode: true } }, // the form of the parameter filter, the only object in a query
    ...options,
    bodySerializer: serialize,
  });
  client.use(exactAnswers);
  if (apiKey !== undefined) {
    client.use({
      onRequest({ request }) {
        request.headers.set("Authorization", `Bearer ${apiKey}`);
      },
    });
  }
  return client;
}
