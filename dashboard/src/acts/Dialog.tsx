import { Modal } from "@mantine/core";
import type { ReactNode } from "react";

/** What lies over a screen until it is answered or left. */
export function Dialog({ title, opened, leave, children }: { title: string; opened: boolean; leave: () => void; children: ReactNode }) {
  return (
    <Modal
      opened={opened}
      onClose={leave}
      title={title}
      transitionProps={{ duration: 0 }}
      closeButtonProps={{ "aria-label": "Close" }}
      overlayProps={{ backgroundOpacity: 0.4 }}
      shadow="none"
      lockScroll={false} // it would be by a style that the policy refuses
      attributes={{ header: { role: "presentation" } }} // not a second banner of the page
      centered
    >
      {children}
    </Modal>
  );
}
