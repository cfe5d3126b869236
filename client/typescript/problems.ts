import { serialize } from "./exact.js";

const REFUSED = new Set([400, 409, 413, 422]); // a repeat of the request would fail again

/** An answer of the service that is not a success. */
export class ProblemError extends Error {
  override name = "ProblemError";

  /** retryAfter is in milliseconds. */
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly retryAfter = 0,
  ) {
    super(`the service answered ${status}: ${detail}`);
  }

  /** Reports whether a repeat of the request would fail again. */
  get isRefused(): boolean {
    return REFUSED.has(this.status);
  }
}

/** The error of an answer that is not a success. */
export function problemOf(response: Response, problem?: { detail?: string }): ProblemError {
  return new ProblemError(response.status, problem?.detail ?? response.statusText, retryAfter(response));
}

/** The pause in milliseconds that an answer asks for. */
export function retryAfter(response: Response): number {
  const seconds = Number(response.headers.get("Retry-After"));
  return Number.isFinite(seconds) ? 1_000 * seconds : 0;
}

/** Reports whether a body was not sent because it is no JSON. */
export function unencodable(body: unknown): boolean {
  try {
    serialize(body);
    return false;
  } catch {
    return true;
  }
}

export const asError = (error: unknown) => (error instanceof Error ? error : new Error(String(error)));
