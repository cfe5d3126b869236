import type { Schema } from "../../api/client";

/** A template for a meter. The guide docs/guides/start-from-a-template.md has the same definitions and events. */
export interface Template {
  /** The kind of events. */
  source: string;
  title: string;
  definition: Schema<"CreateMeter">;
  /** An event that the meter counts. */
  event: { event_type: string; properties: object };
  /** An explanation of the definition, or of its price. */
  note?: string;
}

const openAI = {
  event_type: "llm",
  properties: { model: "gpt-5-mini", usage: { prompt_tokens: 1250, completion_tokens: 310 } },
};

const liteLLM = {
  event_type: "litellm",
  properties: { model: "gpt-5-mini", prompt_tokens: 1250, completion_tokens: 310, response_cost: 0.0009325 },
};

export const templates: Template[] = [
  {
    source: "OpenAI chat completions",
    title: "Input tokens",
    definition: { slug: "openai-input", event_type: "llm", value_property: "usage.prompt_tokens", unit: "tokens", group_by: ["model"] },
    event: openAI,
  },
  {
    source: "OpenAI chat completions",
    title: "Output tokens",
    definition: { slug: "openai-output", event_type: "llm", value_property: "usage.completion_tokens", unit: "tokens", group_by: ["model"] },
    event: openAI,
  },
  {
    source: "LiteLLM logs",
    title: "Input tokens",
    definition: { slug: "litellm-input", event_type: "litellm", value_property: "prompt_tokens", unit: "tokens", group_by: ["model"] },
    event: liteLLM,
  },
  {
    source: "LiteLLM logs",
    title: "Output tokens",
    definition: { slug: "litellm-output", event_type: "litellm", value_property: "completion_tokens", unit: "tokens", group_by: ["model"] },
    event: liteLLM,
  },
  {
    source: "LiteLLM logs",
    title: "Cost",
    definition: { slug: "litellm-cost", event_type: "litellm", value_property: "response_cost", unit: "USD", group_by: ["model"] },
    event: liteLLM,
    note: "An overage rate of 1.2 in USD bills the cost plus 20 %.",
  },
  {
    source: "Other events",
    title: "API calls by endpoint",
    definition: {
      slug: "api-calls",
      event_type: "api_call",
      aggregation: "count",
      unit: "calls",
      filters: [{ property: "status", operator: "lt", values: [500] }],
      group_by: ["endpoint", "method"],
    },
    event: { event_type: "api_call", properties: { endpoint: "/v1/search", method: "POST", status: 200 } },
    note: 'The filter counts calls with a numeric status below 500. It excludes calls without a status, or with a text such as "200".',
  },
  {
    source: "Other events",
    title: "Bytes transferred",
    definition: { slug: "bytes-transferred", event_type: "transfer", value_property: "bytes", unit: "bytes", group_by: ["region"] },
    event: { event_type: "transfer", properties: { bytes: 1500000000, region: "eu" } },
    note: "A meter does not divide. Price each byte: 0.09 for each GB is an overage rate of 0.00000000009.",
  },
  {
    source: "Other events",
    title: "Job minutes",
    definition: { slug: "job-minutes", event_type: "job", value_property: "minutes", unit: "minutes", group_by: ["machine"] },
    event: { event_type: "job", properties: { minutes: 12.5, machine: "large" } },
  },
];
