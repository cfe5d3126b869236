import { Button, type ButtonProps } from "@mantine/core";
import { useSession } from "../api/session";

interface Props extends Pick<ButtonProps, "variant" | "size" | "fullWidth"> {
  /** The permission that it needs. Without it the button stays, and says so. */
  needs: string;
  /** Why it can not be done now, if so. */
  not?: string | undefined;
  loading?: boolean;
  type?: "button" | "submit";
  onClick?: () => void;
  label?: string;
  children: string;
}

/** A button that does something at the API. */
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
      // Not disabled: then it could not be reached, and nobody would read why.
      {...(why !== undefined ? { "aria-disabled": true, "data-disabled": true, title: why } : !loading && onClick && { onClick })}
      // Nor while it waits for an answer: the focus would fall to the page.
      renderRoot={(props) => <button {...props} disabled={undefined} {...(loading && { "aria-disabled": true })} />}
    >
      {children}
    </Button>
  );
}
