import { NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Confirm } from "../../acts/Confirm";
import { Dialog } from "../../acts/Dialog";
import { Form } from "../../acts/Form";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { answer, api, brokenRule, type Schema } from "../../api/client";
import { credentialsOf } from "../../api/credentials";
import type { Inviting } from "./Members";
import { given, roles, type Given } from "./roles";
import styles from "./settings.module.css";

const needs = "tenant:manage";

interface Props {
  member: Schema<"Member">;
}

/** Shows the role of a member, and the actions of an owner on the member. */
export function MemberActs({ member, done }: Props & Inviting) {
  return (
    <div className={styles.opened}>
      <p>
        {member.role}: {roles[member.role]}
      </p>
      <div className={styles.verbs}>
        <Edit member={member} />
        <Reset member={member} done={done} />
        <MakeOwner member={member} />
        <Remove member={member} />
      </div>
    </div>
  );
}

/** Returns the member's name, or the address if the name is empty. */
const nameOf = ({ name, email }: Schema<"Member">) => name || email;

/** Shows the button and the dialog that change the member's name and role. */
function Edit({ member }: Props) {
  const [opened, setOpened] = useState(false);
  const [name, setName] = useState(member.name);
  const [role, setRole] = useState(member.role);
  const changed = { ...(name !== member.name && { name }), ...(role !== member.role && { role: role as Given }) };
  const edit = useAct(() => answer(api.PATCH("/v1/tenant/members/{id}", { params: { path: { id: member.id } }, body: changed })), {
    changes: [["members"], ["audit-log"], ["session"]],
  });
  const leave = () => {
    setOpened(false);
    setName(member.name);
    setRole(member.role);
    edit.reset();
  };
  const not = Object.keys(changed).length === 0 ? "Nothing was changed" : undefined;
  return (
    <>
      <Verb needs={needs} size="xs" label={`Edit ${nameOf(member)}`} onClick={() => setOpened(true)}>
        Edit
      </Verb>
      <Dialog title={`Edit ${nameOf(member)}`} opened={opened} leave={leave}>
        <Form act={edit} needs={needs} not={not} submit="Save the member" leave={leave} onSubmit={() => edit.mutate(undefined, { onSuccess: () => setOpened(false) })}>
          <TextInput label="Name" maxLength={255} value={name} error={brokenRule(edit.error, "name")} onChange={(event) => setName(event.currentTarget.value)} data-autofocus />
          {member.role === "owner" ? (
            <p className="muted">The owner keeps this role until another member becomes the owner.</p>
          ) : (
            <NativeSelect label="Role" value={role} error={brokenRule(edit.error, "role")} onChange={(event) => setRole(event.currentTarget.value as Given)} data={given} />
          )}
        </Form>
      </Dialog>
    </>
  );
}

/** Shows the button that creates a link for a new password. */
function Reset({ member, done }: Props & Inviting) {
  const reset = useAct<string, Schema<"CreatedInvitation">>(() => answer(api.POST("/v1/tenant/members/{id}/reset", { params: { path: { id: member.id } } })), {
    changes: [["invitations"], ["audit-log"]],
    done,
  });
  return (
    <Confirm verb="Reset the password" thing={`of ${nameOf(member)}`} needs={needs} act={reset}>
      A link is created and shown. With it, the member chooses a new password for this tenant, which ends the member's sessions here. Until then, nothing changes.
    </Confirm>
  );
}

/** Shows the button that makes the member the owner, and the user an admin. */
function MakeOwner({ member }: Props) {
  const makeOwner = useAct<string>(() => answer(api.POST("/v1/tenant/members/{id}/make-owner", { params: { path: { id: member.id } } })), {
    changes: [["audit-log"], ["session"]], // not the members: without the role owner, the user cannot read them
  });
  const not = member.role === "owner" ? "The member is already the owner" : undefined;
  return (
    <Confirm verb="Make owner" thing={nameOf(member)} needs={needs} not={not} act={makeOwner} danger>
      A tenant has one owner. {nameOf(member)} becomes the owner, and you become an admin, who cannot undo this.
    </Confirm>
  );
}

type Choice = "hand_over" | "revoke";

/** Shows the button that removes the member. The user chooses the fate of the member's credentials. */
function Remove({ member }: Props) {
  const [keys, setKeys] = useState<Choice>("hand_over");
  const path = { id: member.id };
  const remove = useAct<string>(() => answer(api.DELETE("/v1/tenant/members/{id}", { params: { path, query: { keys } } })), {
    changes: [["members"], ["invitations"], ["api-keys"], ["hmac-secrets"], ["audit-log"]],
  });
  const not = member.role === "owner" ? "Make another member the owner first" : undefined;
  return (
    <Confirm verb="Remove" thing={nameOf(member)} needs={needs} not={not} act={remove} danger>
      <div className={styles.parts}>
        <p>The member is signed out and can no longer sign in to this tenant. Invitations that the member created become invalid.</p>
        <Made by={member.id} />
        <NativeSelect
          label="API keys and HMAC secrets that the member, or these credentials, created"
          value={keys}
          error={brokenRule(remove.error, "keys")}
          onChange={(event) => setKeys(event.currentTarget.value as Choice)}
          data={[
            { value: "hand_over", label: "Keep them valid, under my responsibility" },
            { value: "revoke", label: "Revoke them at once" },
          ]}
        />
      </div>
    </Confirm>
  );
}

/** Lists the valid credentials under the responsibility of a member, which the removal affects. */
function Made({ by }: { by: string }) {
  const { data } = useQuery(credentialsOf(by));
  if (!data) return <p className="muted">Loading the member's credentials.</p>;
  if (data.length === 0) return null;
  return <p>The member's credentials: {data.map(({ name, last_four }) => `${name} …${last_four}`).join(", ")}.</p>;
}
