import { Button, type ButtonProps } from "@mantine/core";
import { useSession } from "../api/session";

interface Props extends Pick<ButtonProps, "variant" | "size" | "fullWidth"> {
  /** The permission that the action needs. Without it, the button stays and shows the reason. */
  needs: string;
  /** The reason why the action is impossible now, if any. */
  not?: string | undefined;
  loading?: boolean;
  type?: "button" | "submit";
  onClick?: () => void;
  label?: string;
  children: string;
}

/** Shows a button for an action that needs a permission of the API. */
export function Verb({ needs, not, type = "button", variant = "default", size = "sm", onClick, label, loading = false, children, ...rest }: Props) {
  const { permissions, member } = useSession();
  const why = permissions.includes(needs) ? not : `The role ${member?.role} cannot do this: the permission ${needs} is required`;
  return (
    <Button
      {...rest}
      loading={loading}
      type={why === undefined ? type : "button"}
      variant={variant}
      size={size}
      {...(label !== undefined && { "aria-label": label })}
      // The button is not disabled, because a user could not focus a disabled button and read the reason.
      {...(why !== undefined ? { "aria-disabled": true, "data-disabled": true, title: why } : !loading && onClick && { onClick })}
      // While the button waits for an answer, it is not disabled either: the focus would move to the page.
      renderRoot={(props) => <button {...props} disabled={undefined} {...(loading && { "aria-disabled": true })} />}
    >
      {children}
    </Button>
  );
}
