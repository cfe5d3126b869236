import { useQuery } from "@tanstack/react-query";
import { members } from "../api/members";
import { useSession } from "../api/session";
import { Identifier } from "./Identifier";

/**
 * Shows an actor. The user appears by name, and other members do too if the user may read the members. All other
 * actors appear by id.
 */
export function Actor({ is }: { is: string }) {
  const { permissions, member } = useSession();
  const asked = is.startsWith("member_") && is !== member?.id && permissions.includes("tenant:manage");
  const { data } = useQuery({ ...members(), enabled: asked });
  const found = is === member?.id ? member : data?.data.find(({ id }) => id === is);
  if (!found) return <Identifier>{is}</Identifier>;
  return <span title={is}>{found.name || found.email}</span>;
}
