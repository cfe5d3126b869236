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
      centered
    >
      {children}
    </Modal>
  );
}
