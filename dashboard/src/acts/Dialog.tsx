import { Button, Modal, type ModalProps } from "@mantine/core";
import { createContext, useContext, useEffect, useRef, useState, type ReactNode } from "react";
import styles from "./acts.module.css";
import { lossOf, type Loss } from "./unsaved";

/** The appearance of every dialog. */
export const dialogStyle = {
  transitionProps: { duration: 0 },
  closeButtonProps: { "aria-label": "Close" },
  overlayProps: { backgroundOpacity: 0.4 },
  shadow: "none",
  lockScroll: false, // the lock needs a style that the content security policy refuses
  attributes: { header: { role: "presentation" } }, // otherwise it is a second banner of the page
  centered: true,
} satisfies Partial<ModalProps>;

interface Props {
  title: string;
  opened: boolean;
  leave: () => void;
  /** Whether only a button in the dialog closes it, because its content cannot be shown again. */
  explicit?: boolean;
  children: ReactNode;
}

const Closing = createContext<(() => void) | undefined>(undefined);

/** Returns the function that closes the surrounding dialog for the user, if there is one. */
export const useClose = () => useContext(Closing);

/** Shows a dialog over a screen until the user answers or closes it. Asks first if closing loses data. */
export function Dialog({ title, opened, leave, explicit = false, children }: Props) {
  const body = useRef<HTMLDivElement>(null);
  const [loss, setLoss] = useState<Loss>();
  useEffect(() => {
    if (!opened) setLoss(undefined);
  }, [opened]);
  const close = () => {
    if (isAsking()) return;
    const found = body.current ? lossOf(body.current) : undefined;
    if (found) setLoss(found);
    else leave();
  };
  return (
    <>
      <Modal {...dialogStyle} opened={opened} onClose={close} title={title} closeOnEscape={!explicit} closeOnClickOutside={!explicit} withCloseButton={!explicit}>
        <Closing value={close}>
          <div ref={body}>{children}</div>
        </Closing>
      </Modal>
      {loss && <Ask loss={loss} stay={() => setLoss(undefined)} leave={leave} />}
    </>
  );
}

const asks = "data-asks";

/** Reports whether a question is open above the dialogs. Keys that close a dialog then apply to the question. */
const isAsking = () => document.querySelector(`[${asks}]`) !== null;

/** Asks whether the user accepts a loss. */
export function Ask({ loss, stay, leave }: { loss: Loss; stay: () => void; leave: () => void }) {
  return (
    <Modal {...dialogStyle} opened onClose={stay} title={loss.title} zIndex={300}>
      <div className={styles.form} {...{ [asks]: true }}>
        <p>{loss.says}</p>
        <div className={styles.buttons}>
          <Button variant="default" size="sm" onClick={stay} data-autofocus>
            {loss.stay}
          </Button>
          <Button variant="danger" size="sm" onClick={leave}>
            {loss.leave}
          </Button>
        </div>
      </div>
    </Modal>
  );
}
