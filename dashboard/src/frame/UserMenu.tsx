import { Menu, UnstyledButton, useMantineColorScheme, type MantineColorScheme } from "@mantine/core";
import { useState } from "react";
import { answer, api } from "../api/client";
import { useSession } from "../api/session";
import styles from "./Frame.module.css";
import { OtherTenants } from "./OtherTenants";
import { useLeave } from "./useLeave";

const schemes: [MantineColorScheme, string][] = [
  ["light", "Light"],
  ["dark", "Dark"],
  ["auto", "As the system has it"],
];

/** Who has signed in, how the screens look to them, and the way out. */
export function UserMenu() {
  const { member } = useSession();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const leave = useLeave();
  const [choosing, setChoosing] = useState(false);
  if (!member) return null;
  const signOut = async () => {
    await answer(api.POST("/v1/auth/logout"));
    await leave();
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
          {member.has_password && <Menu.Item onClick={() => setChoosing(true)}>Another tenant</Menu.Item>}
          <Menu.Item onClick={() => void signOut()}>
            Sign out
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <OtherTenants opened={choosing} leave={() => setChoosing(false)} />
    </>
  );
}
