import { QuotaExceededError, UnavailableError, SettleError, type HeldReservation, type Quotas } from "../client.js";
import { customerOf, refuse } from "./limit.js";

/**
 * Passes requests to the model at url. It reserves the most tokens that a request can use, and settles the reservation
 * with the tokens that the model reports.
 */
export function proxyModel(quotas: Quotas, url: string): (request: Request) => Promise<Response> {
  return async (request) => {
    const prompt = await request.text();
    const maxTokens = maxTokensOf(prompt);
    if (maxTokens === undefined) return new Response("the body must be JSON with max_tokens", { status: 400 });
    const most = new TextEncoder().encode(prompt).length + maxTokens; // a token of the prompt has at least one byte
    let answer: string | undefined;
    try {
      const amounts = [{ meter: "tokens", amount: String(most) }];
      await quotas.reserve({ customer: customerOf(request), amounts }, async (reservation) => {
        answer = await complete(url, prompt, reservation);
      });
    } catch (error) {
      if (error instanceof QuotaExceededError) return refuse(error.refused.resets_at);
      if (error instanceof UnavailableError) return new Response("quotas are not available", { status: 503 });
      if (!(error instanceof SettleError)) return new Response("the model is not available", { status: 502 });
      // Store error.events, and settle them later.
    }
    return new Response(answer ?? "", { headers: { "Content-Type": "application/json" } });
  };
}

/** Sends the prompt to the model, and records the tokens that the model reports. */
async function complete(url: string, prompt: string, reservation: HeldReservation): Promise<string> {
  const response = await fetch(url, { method: "POST", body: prompt });
  if (!response.ok) throw new Error(`the model answered ${response.status}`);
  const answer = await response.text();
  const { model, usage } = JSON.parse(answer) as { model: string; usage: { total_tokens: number } };
  reservation.record({ event_type: "completion", value: String(usage.total_tokens), properties: { model } });
  return answer;
}

function maxTokensOf(prompt: string): number | undefined {
  try {
    const { max_tokens: tokens } = JSON.parse(prompt) as { max_tokens?: unknown };
    return Number.isSafeInteger(tokens) && Number(tokens) > 0 ? Number(tokens) : undefined;
  } catch {
    return undefined;
  }
}
