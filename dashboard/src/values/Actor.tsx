import { useQuery } from "@tanstack/react-query";
import { members } from "../api/members";
import { useSession } from "../api/session";
import { Identifier } from "./Identifier";

/** Who has done something: a member by name, for those who may know the members, and anybody else by id. */
export function Actor({ is }: { is: string }) {
  const { permissions, member } = useSession();
  const asked = is.startsWith("member_") && is !== member?.id && permissions.includes("tenant:manage");
  const { data } = useQuery({ ...members(), enabled: asked });
  const found = is === member?.id ? member : data?.data.find(({ id }) => id === is);
  if (!found) return <Identifier>{is}</Identifier>;
  return <span title={is}>{found.name || found.email}</span>;
}
