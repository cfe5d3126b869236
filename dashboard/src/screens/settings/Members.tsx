import { NativeSelect, TextInput } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { Dialog } from "../../acts/Dialog";
import { Form } from "../../acts/Form";
import { Secret } from "../../acts/Secret";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { answer, api, brokenRule, type Schema } from "../../api/client";
import { members } from "../../api/members";
import { useSession } from "../../api/session";
import { Head } from "../../frame/Head";
import { Opener } from "../../frame/Opener";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Instant } from "../../values/Instant";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { Invitations } from "./Invitations";
import { MemberActs } from "./MemberActs";
import { given, type Given } from "./roles";
import styles from "./settings.module.css";

type Invited = Schema<"CreatedInvitation">;

/** Lists the members of the tenant, and the invitations. */
export function Members() {
  const [invited, setInvited] = useState<Invited>();
  return (
    <>
      <Head part title="Members" action={<Invite done={setInvited} />}>
        The people who can sign in to this tenant. A member's role sets the member's permissions.
      </Head>
      <Allowed to="tenant:manage">
        <MemberTable done={setInvited} />
        <h2 className={styles.section}>Invitations</h2>
        <Invitations done={setInvited} />
      </Allowed>
      <Secret
        title={invited?.member_id ? "Link to reset the password" : "Invitation link"}
        secret={invited?.url}
        leave={() => setInvited(undefined)}
        advice={`Send it to ${invited?.email} only: anyone with the link can accept it, for seven days.`}
      />
    </>
  );
}

export interface Inviting {
  /** Receives the created invitation, to show its link. */
  done: (invited: Invited) => void;
}

const columns = [{ title: "Name" }, { title: "Role" }, { title: "Signs in" }, { title: "Since", number: true }];

/** Lists the members. */
function MemberTable({ done }: Inviting) {
  const { member: opened, page } = useSearch({ from: "/frame/settings/members" });
  const query = useQuery({ ...members(page), placeholderData: keepPreviousData });
  return (
    <List what="The members" columns={columns} query={query} page={page} rows={3} empty={<Empty title="No members yet">Only programs use this tenant.</Empty>}>
      {(member) => <Row key={member.id} member={member} opened={member.id === opened} done={done} />}
    </List>
  );
}

/** Shows a member and, if the row is opened, the actions on the member. */
function Row({ member, opened, done }: Inviting & { member: Schema<"Member">; opened: boolean }) {
  const { member: you } = useSession();
  return (
    <>
      <tr>
        <td className={cell.main}>
          <Opener name="member" value={member.id} open={opened}>
            {member.name || member.email}
          </Opener>
          <p className={styles.under}>
            {member.name && member.email}
            {member.id === you?.id && " · you"}
          </p>
        </td>
        <td>{member.role}</td>
        <td className="muted">{member.has_password ? "with a password" : "at the issuer"}</td>
        <td className={cell.number}>
          <Instant at={member.created_at} as="date" />
        </td>
      </tr>
      {opened && (
        <tr>
          <td colSpan={columns.length} className={cell.whole}>
            <MemberActs member={member} done={done} />
          </td>
        </tr>
      )}
    </>
  );
}

/** Shows the button and the dialog that invite a member. */
function Invite({ done }: Inviting) {
  const [opened, setOpened] = useState(false);
  const [email, setEmail] = useState("");
  const [name, setName] = useState("");
  const [role, setRole] = useState<Given>("viewer");
  const invite = useAct(() => answer(api.POST("/v1/tenant/members", { body: { email, name, role } })), {
    changes: [["invitations"], ["audit-log"]],
    done(made) {
      leave(); // the dialog with the link replaces the form
      done(made);
    },
  });
  const leave = () => {
    setOpened(false);
    setEmail("");
    setName("");
    invite.reset();
  };
  return (
    <>
      <Verb needs="tenant:manage" variant="filled" onClick={() => setOpened(true)}>
        Invite a member
      </Verb>
      <Dialog title="Invite a member" opened={opened} leave={leave}>
        <Form act={invite} needs="tenant:manage" submit="Create the invitation" leave={leave} onSubmit={() => invite.mutate()}>
          <TextInput
            label="E-mail"
            type="email"
            description="Odometer sends no e-mail: you get a link to send"
            required
            withAsterisk={false}
            maxLength={254}
            value={email}
            error={brokenRule(invite.error, "email")}
            onChange={(event) => setEmail(event.currentTarget.value)}
            data-autofocus
          />
          <TextInput label="Name" maxLength={255} value={name} error={brokenRule(invite.error, "name")} onChange={(event) => setName(event.currentTarget.value)} />
          <NativeSelect label="Role" value={role} error={brokenRule(invite.error, "role")} onChange={(event) => setRole(event.currentTarget.value as Given)} data={given} />
        </Form>
      </Dialog>
    </>
  );
}
