import { Menu, UnstyledButton, useMantineColorScheme, type MantineColorScheme } from "@mantine/core";
import { useState } from "react";
import { Ask } from "../acts/Dialog";
import { lossOf, type Loss } from "../acts/unsaved";
import { answer, api } from "../api/client";
import { announceSignOut, useSession } from "../api/session";
import styles from "./Frame.module.css";
import { OtherTenants } from "./OtherTenants";
import { useLeave } from "./useLeave";

const schemes: [MantineColorScheme, string][] = [
  ["light", "Light"],
  ["dark", "Dark"],
  ["auto", "System setting"],
];

/** Shows the signed-in member, with a menu for the colour scheme, another tenant and the sign-out. */
export function UserMenu() {
  const { member } = useSession();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const leave = useLeave();
  const [choosing, setChoosing] = useState(false);
  const [asked, setAsked] = useState<{ loss: Loss; go: () => void }>();
  if (!member) return null;
  const signOut = async () => {
    await answer(api.POST("/v1/auth/logout"));
    announceSignOut();
    await leave();
  };
  /** Returns a function that calls go. If data is unsaved, the function first asks the user: go loses the data. */
  const asking = (go: () => void) => () => {
    const loss = lossOf();
    if (loss) setAsked({ loss, go });
    else go();
  };
  return (
    <>
      <Menu withinPortal={false} withInitialFocusPlaceholder={false} position="top-start" width={232} transitionProps={{ duration: 0 }}>
        <Menu.Target>
          <UnstyledButton className={styles.user} title={member.email}>
            <span className={styles.userName}>{member.name || member.email}</span>
            <span className="muted small">{member.role}</span>
          </UnstyledButton>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.RadioGroup value={colorScheme} onChange={(scheme) => setColorScheme(scheme as MantineColorScheme)}>
            {schemes.map(([scheme, name]) => (
              <Menu.RadioItem key={scheme} value={scheme} data-autofocus={scheme === colorScheme || undefined}>
                {name}
              </Menu.RadioItem>
            ))}
          </Menu.RadioGroup>
          <Menu.Divider />
          {member.has_password && <Menu.Item onClick={asking(() => setChoosing(true))}>Another tenant</Menu.Item>}
          <Menu.Item onClick={asking(() => void signOut())}>
            Sign out
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
      {asked && (
        <Ask
          loss={asked.loss}
          stay={() => setAsked(undefined)}
          leave={() => {
            setAsked(undefined);
            asked.go();
          }}
        />
      )}
      <OtherTenants opened={choosing} leave={() => setChoosing(false)} />
    </>
  );
}
