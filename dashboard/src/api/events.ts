import { api, exactAnswer, type Schema } from "./client";
import type { operations } from "@odometer-metering/client";

type Query = NonNullable<operations["list-events"]["parameters"]["query"]>;

/** Reads a page of the stored events. */
export const readEvents = (query: Query, signal: AbortSignal) => exactAnswer<Schema<"EventPage">>(api.GET("/v1/events", { params: { query }, parseAs: "text", signal }));
