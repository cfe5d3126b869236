import type { Schema } from "../../api/client";

type Role = Schema<"Member">["role"];

/** The permissions of each role, in words. The role with the most permissions is first. */
export const roles: Record<Role, string> = {
  owner: "everything, including members and settings; one per tenant",
  admin: "everything except members and settings",
  developer: "sends events; changes meters, customers and webhooks",
  billing: "reads everything; changes prices and billing",
  viewer: "reads usage, meters and customers",
};

/** The roles that an owner can assign. The role owner moves from one member to another instead. */
export const given = (Object.keys(roles) as Role[])
  .filter((role): role is Exclude<Role, "owner"> => role !== "owner")
  .map((role) => ({ value: role, label: `${role}: ${roles[role]}` }));

export type Given = Exclude<Role, "owner">;
