import { createClient, parseExactly, type Schema } from "@odometer-metering/client";
import { sessionEnded } from "./ended";
import { plainRule } from "./rules";

export type { Schema };

/** The error of a request, in the API's words if the API has answered. */
export class Failure extends Error {
  override name = "Failure";

  constructor(
    readonly title: string,
    readonly detail: string,
    /** The status of the answer; 0: there was no answer. */
    readonly status: number,
    readonly requestID: string | null,
    /** The kind of problem. */
    readonly code: string,
    /** The broken rules, each with its place in the request. */
    readonly fields: Schema<"FieldProblem">[] = [],
    /** The effect of the change on billing periods that have begun, if the change has to be confirmed. */
    readonly confirmation?: Schema<"Confirmation">,
  ) {
    super(`${title}: ${detail}`);
  }
}

/**
 * Returns the message of the rule that a field of a body or a query broke. field is a name or a path, such as
 * filters[0].values. A rule about a part of the field, such as group_by[1] of group_by, also matches.
 */
export function brokenRule(error: Error | null, field: string): string | undefined {
  if (!(error instanceof Failure)) return undefined;
  const path = dotted(field);
  return error.fields.find(({ location }) => dotted(location).includes(path))?.message;
}

/** Returns a path with a dot around each name and index, so that one path can be found in another. */
const dotted = (path: string) => `.${path.split(/[.[\]]+/).filter(Boolean).join(".")}.`;

let csrfToken: string | undefined;

const [session, signIn] = ["/v1/auth/session", "/v1/auth/login"];

/** Sets the token that each request except a GET sends. Only a page of this origin knows the token of the session. */
export function sendCSRFToken(token: string | undefined): void {
  csrfToken = token;
}

export const api = createClient({ baseUrl: location.origin, fetch: (request) => fetch(request) });

api.use({
  onRequest({ request }) {
    if (csrfToken !== undefined && request.method !== "GET") request.headers.set("X-CSRF-Token", csrfToken);
  },
  async onResponse({ request, response, schemaPath }) {
    if (response.status !== 401 || csrfToken === undefined || schemaPath === signIn) return undefined;
    const again = sessionEnded();
    if (schemaPath === session) return undefined;
    if (request.method !== "GET") throw new Failure("Session ended", "The session has ended, and nothing was changed. Try again.", 401, null, "session_ended");
    await again; // the request waits for the sign-in, so that the screen stays
    return fetch(request);
  },
});

interface Exchange<Body> {
  data?: Body;
  error?: unknown;
  response: Response;
}

/** Returns the body of an answer, or throws a Failure. */
export async function answer<Body>(exchange: Promise<Exchange<Body>>): Promise<Body> {
  const { data, error, response } = await exchange.catch((cause: unknown) => {
    if (!(cause instanceof TypeError)) throw cause; // fetch reports a missing answer as a TypeError
    throw new Failure("No answer", "The service could not be reached. Check the connection, then try again.", 0, null, "no_answer");
  });
  if (response.ok) return data as Body; // if an answer has no body, Body is undefined
  const problem = (typeof error === "object" ? error : null) as Partial<Schema<"Problem">> | null;
  throw new Failure(
    problem?.title ?? `Answer ${response.status}`,
    problem?.detail ?? "The response contains no details.",
    response.status,
    problem?.request_id ?? response.headers.get("X-Request-Id"),
    problem?.code ?? "",
    problem?.errors?.map(plainRule),
    problem?.confirmation,
  );
}

/** Returns the body of an answer that was read as text. Every number keeps its digits. */
export const exactAnswer = async <Body>(exchange: Promise<Exchange<string>>) => parseExactly<Body>(await answer(exchange));
