import { appendFileSync } from "node:fs";
import { expect, test as base, type APIRequestContext, type BrowserContext, type Locator, type Page } from "@playwright/test";
import { BrowserErrors } from "./browserErrors";
import { expectStill, expectUsable } from "./screen";
import { made, pictures, stepTimeout, system } from "./system";

export { expect } from "@playwright/test";

const desktop = { width: 1280, height: 800 };
const phone = { width: 360, height: 740 };

const controls = ["button", "link", "checkbox", "radio", "menuitem", "option"] as const;

/** Returns the elements that show that the content of a screen is loaded. */
const contentsOf = (main: Locator) => ({
  heading: main.getByRole("heading", { level: 2 }),
  title: main.getByRole("heading", { level: 1 }),
  row: main.locator("tbody").getByRole("cell"),
  link: main.locator("tbody").getByRole("link"),
  total: main.locator("tfoot").getByRole("cell"),
  item: main.getByRole("listitem"),
  form: main.locator("form"),
  facts: main.locator("dl"),
  message: main.locator("pre"),
  chart: main.locator("canvas"),
});

type Content = keyof ReturnType<typeof contentsOf>;

/** A screen: the name of its picture, its path, and the content that it has when it is loaded. */
export type Screen = [name: string, path: string, ...shows: Content[]];

/** A question of a dialog that confirms an action. */
interface Question {
  /** A text that only the dialog shows. */
  says: string;
  /** The texts of the dialog's fields, by their labels. */
  fill?: Record<string, string>;
  /** The name of a picture of the dialog, which is then judged. */
  judge?: string;
  /** The path of the request, if the action changes running bills. */
  changesBills?: string;
}

/**
 * A user of the dashboard. Finds every control by its visible label, and acts only after the page has settled. To judge
 * a screen is to save its picture and to check it with axe-core.
 */
export class User {
  constructor(
    readonly page: Page,
    private request: APIRequestContext,
    private errors = new BrowserErrors(page, []),
  ) {}

  /** Returns the topmost dialog, or the page if no dialog is open. */
  private top = () => this.page.getByRole("dialog").or(this.page.locator("body")).last();

  /**
   * Returns the element with exactly this label. If there is none, returns the first element with a label that begins
   * with this text, because a state may follow it.
   */
  private find(label: string, elements: (within: Page | Locator, label: RegExp) => Locator): Locator {
    const begin = `^\\s*${label.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}`;
    const visible = (within: Page | Locator, label: string) => elements(within, new RegExp(label)).filter({ visible: true });
    const whole = `${begin}\\s*$`;
    const withoutWhole = this.top().filter({ hasNot: visible(this.page, whole) });
    return visible(this.top(), whole).or(visible(withoutWhole, begin)).first();
  }

  private field = (label: string) => this.find(label, (within, label) => within.getByLabel(label).and(within.locator("input, textarea, select")));

  /** Opens a screen on a desktop and waits until its content is loaded. */
  open = (path: string) =>
    base.step(`open ${path}`, async () => {
      await this.page.setViewportSize(desktop);
      await this.goTo(path);
      await this.page.getByRole("heading", { level: 1 }).first().waitFor({ state: "attached" });
      await this.settle();
    });

  /** Opens a URL after the current page has settled, because leaving the page would cancel a request to save. */
  private async goTo(url: string) {
    await this.settle();
    await this.page.goto(url);
  }

  /** Opens a screen repeatedly until it shows a text, because an open screen may have stopped polling. */
  async reopen(path: string, text: string) {
    await expect(async () => {
      await this.open(path);
      await expect(this.page.getByRole("main")).toContainText(text, { useInnerText: true, timeout: 5_000 });
    }).toPass();
  }

  /** Returns the path, the query and the fragment of the current screen. */
  address = () => this.page.url().slice(system.url.length);

  /** Waits until the page has settled, and performs an action on the element with a label. */
  private act(verb: string, label: string, action: () => Promise<unknown>) {
    return base.step(`${verb} ${label}`, async () => {
      await this.settle();
      await action();
    });
  }

  /** Presses buttons, links and options. */
  async press(...labels: string[]) {
    for (const label of labels) {
      const control = (within: Page | Locator, name: RegExp) =>
        controls.map((role) => within.getByRole(role, { name, disabled: false })).reduce((all, one) => all.or(one), within.locator("label").filter({ hasText: name }));
      await this.act("press", label, () => this.find(label, control).click());
    }
  }

  /** Replaces the texts of fields. */
  async fill(texts: Record<string, string>) {
    for (const [label, text] of Object.entries(texts)) await this.act("fill", label, () => this.field(label).fill(text));
  }

  /** Chooses options of lists. */
  async choose(options: Record<string, string>) {
    for (const [label, option] of Object.entries(options)) await this.act("choose", label, () => this.field(label).selectOption({ label: option }));
  }

  /** Waits until the page shows texts. */
  async see(...texts: string[]) {
    for (const text of texts) await base.step(`see ${text}`, () => this.page.waitForFunction((text) => document.body?.innerText.includes(text), text));
  }

  /** Waits until the page no longer shows texts. */
  async seeNo(...texts: string[]) {
    for (const text of texts) await base.step(`see no ${text}`, () => this.page.waitForFunction((text) => document.body && !document.body.innerText.includes(text), text));
  }

  /** Waits until fields contain texts. */
  async seeFilled(texts: Record<string, string>) {
    for (const [label, text] of Object.entries(texts)) await expect(this.field(label)).toHaveValue(text);
  }

  /**
   * Waits until the topmost dialog, or else the page, has loaded all its content and no button waits for an answer. A
   * button that saves a form waits until the saved values are read again.
   */
  settle = () =>
    this.page.waitForFunction(() => {
      const top = [...document.querySelectorAll("[role=dialog]")].at(-1) ?? document;
      return !top.querySelector("[data-loading], [aria-busy=true]");
    });

  /** Presses a button, answers the question of its dialog with a button there, and waits until the dialog is closed. */
  async confirm(verb: string, { says, fill = {}, judge, changesBills }: Question, answer = verb) {
    await this.press(verb);
    await this.see(says);
    await this.fill(fill);
    if (judge) await this.judge(judge);
    await this.press(answer);
    if (changesBills) await this.changeBills(changesBills);
    await this.seeNo(says);
  }

  /**
   * Confirms a change of running bills, which the API requires when it refuses the request to the path. If a period
   * was closed in the meantime, the API requires another confirmation.
   */
  async changeBills(path: string, judge?: string) {
    const question = "in running billing periods";
    await this.see(question);
    if (judge) await this.judge(judge);
    await expect(async () => {
      if (this.forgive(path)) await this.press("Change the bills");
      await expect(this.page.locator("body")).not.toContainText(question, { useInnerText: true, timeout: 1_000 });
    }).toPass();
  }

  /** Returns the secret that the page shows once. */
  readSecret = () => this.page.locator("[data-secret]").innerText();

  /** Sends an event with the key that the page shows once, as the user's application does. */
  async sendEvent(event: object) {
    const headers = { Authorization: `Bearer ${await this.readSecret()}` };
    await expect(await this.request.post("/v1/events", { headers, data: { idempotency_key: crypto.randomUUID(), ...event } })).toBeOK();
  }

  /** Creates an API key on the current screen, and sends an event with it. */
  async sendEventWithNewKey(name: string, event: object) {
    await this.press("Create an API key");
    await this.fill({ Name: name });
    await this.press("Create the key");
    await this.sendEvent(event);
    await this.closeSecret();
  }

  /** Closes the dialog of a secret without copying the secret, which needs a confirmation. */
  async closeSecret() {
    await this.see("It is shown only once");
    await this.press("I have copied it");
    await this.see("cannot be shown again");
    await this.press("Close without copying");
    await this.seeNo("cannot be shown again", "It is shown only once");
  }

  /** Removes the browser's errors about an API request that the previous step caused to fail. */
  forgive = (path: string) => this.errors.forgive(system.url + path);

  /** Changes the window to the size of a phone. */
  usePhone = () => this.page.setViewportSize(phone);

  /** Signs in as the owner of the tenant. */
  async signIn() {
    await this.open("/sign-in");
    await this.fill({ "E-mail": system.email, Password: system.password });
    await this.press("Sign in");
    await this.seeNavigation();
  }

  /** Judges the menu of the signed-in member, and signs out. */
  async signOut() {
    await this.open("/customers");
    await this.openMenu();
    await this.judge("menu");
    await this.press("Sign out");
    await this.page.getByLabel("Password", { exact: true }).waitFor();
  }

  /** Clears the cookies without ending the session, while no page is open that would send requests without it. */
  async forgetSession() {
    await this.goTo("about:blank");
    await this.page.context().clearCookies();
  }

  /** Waits until the page shows the navigation of a signed-in member. */
  seeNavigation = () => this.page.getByRole("navigation").getByRole("link", { name: "Overview" }).waitFor();

  /** Opens the menu of the signed-in member. */
  async openMenu() {
    await this.page.locator("[aria-haspopup=menu]").click();
    await expect(this.page.getByRole("menu").locator(":focus")).toBeVisible();
  }

  /**
   * Judges the current content, for example a dialog: saves its picture, and requires that axe-core finds no violation
   * and that the content is not wider than the window.
   */
  async judge(name: string) {
    await this.settle();
    await this.takePicture(name);
    await expectUsable(this.page, name);
  }

  /**
   * Opens a screen, and judges it in both color schemes and at the sizes of a desktop and a phone. In the light scheme,
   * the screen opens at the size of a desktop; in the dark scheme, at the size of a phone.
   */
  async judgeScreen(name: string, path: string, ...shows: Content[]) {
    for (const [scheme, ...windows] of [["light", desktop, phone] as const, ["dark", phone, desktop] as const]) {
      await this.page.emulateMedia({ colorScheme: scheme });
      for (const [i, window] of windows.entries()) {
        await this.page.setViewportSize(window);
        if (i === 0) await expectStill(this.page, name, () => this.openAnew(path, shows));
        await this.judge(`${name}-${scheme}-${window.width}`);
      }
    }
  }

  async judgeScreens(screens: Screen[]) {
    for (const screen of screens) await base.step(`judge ${screen[0]}`, () => this.judgeScreen(...screen));
  }

  /** Waits until the current screen is loaded, and judges the screen at its address. */
  async judgeHere(name: string, ...shows: Content[]) {
    await this.settle();
    await this.judgeScreen(name, this.address(), ...shows);
  }

  /** Loads a screen again, and waits until it shows one of the contents. */
  private async openAnew(path: string, shows: Content[]) {
    await this.goTo("about:blank"); // a URL that differs only behind # would not load the page again
    await this.page.goto(path);
    const contents = contentsOf(this.page.getByRole("main"));
    await shows.map((content) => contents[content]).reduce((all, one) => all.or(one)).filter({ visible: true }).first().waitFor();
    await this.settle();
  }

  /** Saves a screenshot, if there is a folder for screenshots. */
  async takePicture(name: string) {
    if (pictures) await this.page.screenshot({ path: `${pictures}/${name}.png` });
  }
}

/** The users in the tests: one page each, seen with different sessions. */
interface People {
  /** The user of the page, signed in if an earlier test has left an open session. */
  anyone: User;
  /** A user without a session. */
  visitor: User;
  /** A user that is signed in as the owner of the tenant. */
  user: User;
}

/** The tests share a browser context, so that each does not load all scripts and sign in again. */
export const test = base.extend<People, { shared: BrowserContext }>({
  shared: [
    async ({ browser }, use) => {
      const context = await browser.newContext({ baseURL: system.url, viewport: desktop });
      context.setDefaultTimeout(stepTimeout);
      await use(context);
      await context.close();
    },
    { scope: "worker" },
  ],
  page: async ({ shared }, use) => {
    const page = await shared.newPage();
    await use(page);
    await page.close();
  },
  anyone: async ({ page, request }, use, info) => {
    const errors = new BrowserErrors(page, [system.url, system.issuer.url].filter(Boolean));
    const calls = new Set<string>();
    page.on("request", (request) => {
      const { origin, pathname } = new URL(request.url());
      if (request.method() !== "GET" && origin === system.url) calls.add(`${request.method()} ${pathname}\n`);
    });
    page.on("dialog", (dialog) => void dialog.accept()); // the browser's question about unsaved text
    const anyone = new User(page, request, errors);
    await use(anyone);
    if (info.status !== info.expectedStatus) await anyone.takePicture("failed");
    if (made) appendFileSync(made, [...calls].join(""));
    expect(errors.all()).toEqual([]);
  },
  visitor: async ({ anyone }, use) => {
    await anyone.forgetSession();
    await use(anyone);
  },
  user: async ({ anyone }, use) => {
    const session = await anyone.page.request.get("/v1/auth/session");
    if (!session.ok()) await anyone.signIn();
    await use(anyone);
  },
});

/** Declares a test for each screen, which judges the screen. A path that an earlier test finds out is a function. */
export function testScreens(...screens: [name: string, path: string | (() => string), ...shows: Content[]][]) {
  for (const [name, path, ...shows] of screens) {
    test(`screen ${name}`, ({ user }) => user.judgeScreen(name, typeof path === "string" ? path : path(), ...shows));
  }
}
