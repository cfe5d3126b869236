import type { APIRequestContext } from "@playwright/test";
import { expect } from "./user";

/** The part of the fake's state that the tests read. */
interface State {
  accounts: { invoices: { id: string; customer: string; status: string }[] }[];
}

/** The fake of Stripe. Except for the void of an invoice, it is controlled by endpoints that Stripe does not have. */
export class StripeFake {
  constructor(
    private request: APIRequestContext,
    private url: string,
  ) {}

  private async call(path: string, data: object, headers: Record<string, string> = {}) {
    const response = await this.request.post(this.url + path, { data, headers });
    await expect(response).toBeOK();
    return response;
  }

  /**
   * Creates a customer, a price, and a subscription for the month until an instant. The ids of the customer and the
   * subscription contain the name.
   */
  subscribe(account: { id: string; key: string; webhook_secret?: string }, name: string, price: { id: string; [field: string]: unknown }, end?: Date) {
    const month = end && { current_period_start: Math.floor(new Date(end).setUTCMonth(end.getUTCMonth() - 1) / 1000), current_period_end: Math.floor(end.getTime() / 1000) };
    return this.call("/_seed", {
      account,
      prices: [price],
      customers: [{ id: `cus_${name}` }],
      subscriptions: [{ id: `sub_${name}`, customer: `cus_${name}`, ...month, items: [{ id: `si_${name}`, price: price.id }] }],
    });
  }

  /** Sets the failures of the next requests. */
  fail = (how: { status: number; times: number; path?: string; done?: boolean }) => this.call("/behave", how);

  /** Ends the failures that fail() has set. */
  recover = () => this.call("/behave", { times: 0 });

  /** Voids an invoice. The events about it are not delivered. */
  voidInvoice = (invoice: string, key: string) => this.call(`/v1/invoices/${invoice}/void`, {}, { Authorization: `Bearer ${key}` });

  /** Returns the id of the customer's draft invoice. */
  async findDraft(customer: string): Promise<string> {
    const state: State = await (await this.request.get(`${this.url}/_state`, { timeout: 0 })).json();
    const draft = state.accounts.flatMap(({ invoices }) => invoices ?? []).find((invoice) => invoice.customer === customer && invoice.status === "draft");
    expect(draft, `${customer} has a draft`).toBeDefined();
    return draft!.id;
  }

  /** Sends the event about a new invoice, until the API accepts it, as Stripe does. */
  async sendInvoiceCreated(invoice: string, url?: string) {
    await expect(async () => {
      const sent = await this.call("/_webhook", { type: "invoice.created", object: invoice, url });
      expect((await sent.json()).status).toBeLessThan(300);
    }).toPass();
  }
}
