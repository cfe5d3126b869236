import { readFileSync } from "node:fs";

const { env } = process;

/** The file that `make up` writes, if CREDENTIALS has its path. */
const credentials: Record<string, string> = env.CREDENTIALS ? JSON.parse(readFileSync(env.CREDENTIALS, "utf8")) : {};

/** The system under test. */
export const system = {
  url: credentials.base_url ?? env.ODOMETER_URL ?? "",
  /** The credentials of the owner of a tenant. */
  email: credentials.email ?? env.ODOMETER_EMAIL ?? "",
  password: credentials.password ?? env.ODOMETER_PASSWORD ?? "",
  key: credentials.admin_key ?? env.ODOMETER_KEY ?? "",
  /** Whether the tenant already has customers. */
  isInUse: env.CREDENTIALS !== undefined,
  /** The URL of the fake of Stripe. */
  stripe: credentials.stripe_fake_url ?? env.STRIPE ?? "",
  /** The tenant that is billed at the fake of Stripe, and its key. */
  stripeTenant: { id: credentials.stripe_tenant_id ?? "", key: credentials.stripe_admin_key ?? "" },
  temporalUI: credentials.temporal_ui_url ?? "",
  /** A URL that advances the clock of the API, the worker and the fake to the instant in a request's body. */
  clock: env.CLOCK ?? "",
  /** The URL of a receiver of statements. */
  receiver: env.RECEIVER ?? "",
  /** An OIDC issuer, and the client ID and secret of this API there. */
  issuer: { url: env.ISSUER ?? "", client: env.CLIENT ?? "", secret: env.SECRET ?? "" },
};

/** The maximum duration of a step, such as a press of a button, in milliseconds. */
export const stepTimeout = 30_000;

/** Whether slow screens fail the tests. Otherwise the tests only print durations, which depend on the machine. */
export const measures = Boolean(env.MEASURE);

/** The folder in which a screenshot of each screen is saved; undefined: none is saved. */
export const pictures = env.PICTURES;

/** The file to which the method and path of each API request of the pages is appended, except GET requests. */
export const made = env.MADE;
