import { Menu, UnstyledButton, useMantineColorScheme, type MantineColorScheme } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useSession, useSignOut } from "../api/session";
import styles from "./Frame.module.css";

const schemes: [MantineColorScheme, string][] = [
  ["light", "Light"],
  ["dark", "Dark"],
  ["auto", "As the system has it"],
];

/** Who has signed in, how the screens look to them, and the way out. */
export function UserMenu() {
  const { member } = useSession();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const signOut = useSignOut();
  const navigate = useNavigate();
  if (!member) return null;
  const leave = async () => {
    await signOut();
    await navigate({ to: "/sign-in" });
  };
  return (
    <Menu position="top-start" width={232} transitionProps={{ duration: 0 }}>
      <Menu.Target>
        <UnstyledButton className={styles.user}>
          <span className={styles.userName}>{member.name || member.email}</span>
          <span className="muted small">{member.role}</span>
        </UnstyledButton>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label className={styles.email}>{member.email}</Menu.Label>
        <Menu.Divider />
        {schemes.map(([scheme, name]) => (
          <Menu.Item
            key={scheme}
            role="menuitemradio"
            aria-checked={colorScheme === scheme}
            leftSection={<span className={styles.check}>{colorScheme === scheme ? "✓" : ""}</span>}
            onClick={() => setColorScheme(scheme)}
          >
            {name}
          </Menu.Item>
        ))}
        <Menu.Divider />
        <Menu.Item leftSection={<span className={styles.check} />} onClick={() => void leave()}>
          Sign out
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
