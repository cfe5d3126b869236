import { useQuery } from "@tanstack/react-query";
import { Confirm } from "../../acts/Confirm";
import { useAct } from "../../acts/useAct";
import { answer, api, type Schema } from "../../api/client";
import { Actor } from "../../values/Actor";
import { Ago } from "../../values/Ago";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import type { Inviting } from "./Members";
import styles from "./settings.module.css";

const needs = "tenant:manage";
const columns = [{ title: "For" }, { title: "Role" }, { title: "By" }, { title: "Expires" }, { title: "Actions", unseen: true }];

/** Lists the pending invitations: those that are neither accepted, revoked nor expired. */
export function Invitations({ done }: Inviting) {
  const query = useQuery({
    queryKey: ["invitations"],
    queryFn: ({ signal }) => answer(api.GET("/v1/tenant/invitations", { params: { query: { page_size: 100 } }, signal })),
  });
  return (
    <List what="The invitations" columns={columns} query={query} rows={1} empty={<p className="muted">No invitation is pending.</p>}>
      {(invitation) => (
        <tr key={invitation.id}>
          <td className={cell.main}>
            {invitation.name || invitation.email}
            <p className={styles.under}>{[invitation.name && invitation.email, invitation.member_id && "password reset"].filter(Boolean).join(" · ")}</p>
          </td>
          <td>{invitation.role}</td>
          <td data-title="by">
            <Actor is={invitation.created_by} />
          </td>
          <td data-title="ends">
            <Ago at={invitation.expires_at} />
          </td>
          <td className={cell.number}>
            <div className={styles.rowVerbs}>
              <Renew invitation={invitation} done={done} />
              <Revoke invitation={invitation} />
            </div>
          </td>
        </tr>
      )}
    </List>
  );
}

interface Props {
  invitation: Schema<"Invitation">;
}

/** Shows the button that replaces the invitation's link. */
function Renew({ invitation: { id, email }, done }: Props & Inviting) {
  const renew = useAct<string, Schema<"CreatedInvitation">>(() => answer(api.POST("/v1/tenant/invitations/{id}/renew", { params: { path: { id } } })), {
    changes: [["invitations"], ["audit-log"]],
    done,
  });
  return (
    <Confirm verb="Renew" thing={`the invitation of ${email}`} needs={needs} act={renew}>
      A new link is created and shown. It is valid for seven days. The previous link is no longer valid.
    </Confirm>
  );
}

/** Shows the button that revokes the invitation. */
function Revoke({ invitation: { id, email } }: Props) {
  const revoke = useAct<string>(() => answer(api.DELETE("/v1/tenant/invitations/{id}", { params: { path: { id } } })), { changes: [["invitations"], ["audit-log"]] });
  return (
    <Confirm verb="Revoke" thing={`the invitation of ${email}`} needs={needs} act={revoke} danger>
      The link can no longer be accepted.
    </Confirm>
  );
}
