import type { Page } from "@playwright/test";

/**
 * Collects the errors of a page: console errors, exceptions, failed requests, and requests to origins other than
 * the expected ones.
 */
export class BrowserErrors {
  private errors: string[] = [];

  constructor(page: Page, origins: string[]) {
    const expected = (url: string) => origins.some((origin) => url.startsWith(`${origin}/`));
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) this.errors.push(`the browser logged "${message.text()}" at ${message.location().url}`);
    });
    page.on("pageerror", (error) => this.errors.push(`the page fails: ${error}`));
    page.on("request", (request) => {
      if (!expected(request.url())) this.errors.push(`the page requests ${request.url()}`);
    });
    page.on("response", (response) => {
      if (response.status() >= 400) this.errors.push(`${response.url()} returns ${response.status()}`);
    });
  }

  /** Removes the collected errors about a URL, and reports whether there were any. */
  forgive(url: string): boolean {
    const others = this.errors.filter((error) => !error.includes(url));
    const found = others.length < this.errors.length;
    this.errors = others;
    return found;
  }

  all = () => this.errors;
}
