import { createTheme, type CSSVariablesResolver, type MantineColorsTuple, localStorageColorSchemeManager } from "@mantine/core";

// Mantine uses the colours of tokens.css, like the rest of the dashboard. Each shade of Mantine maps to the token for
// the purpose that Mantine uses the shade for.
const shades = (...names: string[]) => names.map((name) => `var(--${name})`) as unknown as MantineColorsTuple;
const accent = shades(...Array.from({ length: 10 }, () => "accent"));
const gray = shades("hover", "hover", "line", "line", "field", "muted", "muted", "text", "text", "text");
const dark = shades("text", "text", "muted", "muted", "field", "hover", "surface", "ground", "ground", "ground");

export const theme = createTheme({
  primaryColor: "accent",
  colors: { accent, gray, dark },
  fontFamily: "var(--sans)",
  fontFamilyMonospace: "var(--mono)",
  fontSizes: { xs: "12px", sm: "14px", md: "14px", lg: "20px", xl: "28px" },
  lineHeights: { xs: "16px", sm: "20px", md: "20px", lg: "28px", xl: "36px" },
  defaultRadius: "var(--radius)",
  cursorType: "pointer",
  respectReducedMotion: true,
  variantColorResolver({ variant }) {
    if (variant === "filled") {
      return { background: "var(--accent)", hover: "var(--accent-hover)", color: "var(--on-accent)", border: "1px solid transparent" };
    }
    if (variant === "danger") {
      return { background: "var(--bad)", hover: "var(--bad-hover)", color: "var(--on-accent)", border: "1px solid transparent" };
    }
    const border = variant === "default" ? "1px solid var(--line)" : "1px solid transparent";
    return { background: variant === "default" ? "var(--surface)" : "transparent", hover: "var(--hover)", color: "var(--text)", border };
  },
});

/** Mantine's CSS variables with our tokens as values. Both schemes share them: the tokens change with the scheme. */
const tokens = {
  "--mantine-color-body": "var(--ground)",
  "--mantine-color-text": "var(--text)",
  "--mantine-color-dimmed": "var(--muted)",
  "--mantine-color-placeholder": "var(--muted)",
  "--mantine-color-anchor": "var(--accent)",
  "--mantine-color-error": "var(--bad)",
  "--mantine-color-default": "var(--surface)",
  "--mantine-color-default-hover": "var(--hover)",
  "--mantine-color-default-color": "var(--text)",
  "--mantine-color-default-border": "var(--line)",
  "--mantine-primary-color-filled": "var(--accent)",
};

export const variables: CSSVariablesResolver = () => ({ variables: {}, light: tokens, dark: tokens });

export const schemes = localStorageColorSchemeManager({ key: "scheme" });

/** The nonce that the API has put into the page, for the styles that are created while the page runs. */
export const nonce = document.querySelector<HTMLMetaElement>('meta[property="csp-nonce"]')?.content ?? "";
