const MODEL =
  "included_units (overage_units overage_rate overage_charge | charged_units (package_size packages package_price" +
  " | percent unit_charges (fixed_fee fixed_fees)? | unit_price unit_charges per_units? | unit_charges: per_units? flat_fees:?) usage_charge)";
const CHARGE =
  `(provider_charge: | (${MODEL} | dimension_charge:* default_charge:? unrated_units:? usage_charge)` +
  " base_price minimum_charge? maximum_charge? exact_charge)";
const CLOSED = "closed_units closed_charge (only_reported_units only_reported)?";
const ELSEWHERE = "elsewhere_units: (billed_elsewhere | billed_elsewhere:)";

const compile = (form: string) => new RegExp(`^(?:${form.replace(/[a-z_]+:?/g, "(?:$&;)").replaceAll(" ", "")})$`);

/**
 * The order of the steps of a line in meters and in adjustments, and of the parts of each step that has parts. A name
 * with a colon is a step with parts. In a trial, no other connection bills amounts.
 */
export const forms = new Map([
  ["meters", compile(`usage reported_units? ${CHARGE} (charge (${ELSEWHERE} quantity amount)? | trial charge (elsewhere_units: quantity amount)?)`)],
  [
    "adjustments",
    compile(
      `usage late_usage total_usage reported_units? ${CHARGE} (charge ${CLOSED} (${ELSEWHERE})? | trial charge ${CLOSED} elsewhere_units:?) quantity amount`,
    ),
  ],
  ["dimension_charge", compile(`(matched_units | matched_units:) ${MODEL}`)],
  ["default_charge", compile(`(matched_units | matched_units:) ${MODEL}`)],
  ["matched_units", compile("dimension_units+")],
  ["unrated_units", compile("dimension_units+")],
  ["unit_charges", compile("tier:+")],
  ["tier", compile("tier_units tier_unit_price")],
  ["flat_fees", compile("tier_flat_fee+")],
  ["provider_charge", compile("(price_line | price_line:)+")],
  ["price_line", compile("priced_units price_rate")],
  ["elsewhere_units", compile("part+")],
  ["billed_elsewhere", compile("part+")],
]);

/** Returns the unit of a step. The unit of a part is the unit of its owner. */
export function expectedUnit(name: string, ownerUnit: string, currency: string): string {
  if (name === "part") return ownerUnit;
  if (name === "packages" || name === "percent") return name;
  return /(usage|units|quantity|size)$/.test(name) ? "units" : currency;
}

const currencies: [number, string][] = [
  [0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"],
  [3, "BHD IQD JOD KWD LYD OMR TND"],
  [4, "CLF UYW"],
];

/** Returns the number of decimals of the currency, as in ISO 4217. */
export function minorDigits(currency: string): string {
  const [digits] = currencies.find(([, codes]) => codes.split(" ").includes(currency)) ?? [2];
  return String(digits);
}
