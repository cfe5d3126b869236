import { Button, Modal, type ModalProps } from "@mantine/core";
import { createContext, useContext, useEffect, useRef, useState, type ReactNode } from "react";
import styles from "./acts.module.css";
import { lossOf, type Loss } from "./unsaved";

/** How every dialog looks. */
export const look = {
  transitionProps: { duration: 0 },
  closeButtonProps: { "aria-label": "Close" },
  overlayProps: { backgroundOpacity: 0.4 },
  shadow: "none",
  lockScroll: false, // it would be by a style that the policy refuses
  attributes: { header: { role: "presentation" } }, // not a second banner of the page
  centered: true,
} satisfies Partial<ModalProps>;

interface Props {
  title: string;
  opened: boolean;
  leave: () => void;
  /** It holds what cannot be shown again: only a button in it closes it. */
  explicit?: boolean;
  children: ReactNode;
}

const Closing = createContext<(() => void) | undefined>(undefined);

/** Returns how the user closes the dialog around a component, if there is one. */
export const useClose = () => useContext(Closing);

/** Lies over a screen until the user answers or closes it. It asks before it closes if something in it would be lost. */
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
      <Modal {...look} opened={opened} onClose={close} title={title} closeOnEscape={!explicit} closeOnClickOutside={!explicit} withCloseButton={!explicit}>
        <Closing value={close}>
          <div ref={body}>{children}</div>
        </Closing>
      </Modal>
      {loss && <Ask loss={loss} stay={() => setLoss(undefined)} leave={leave} />}
    </>
  );
}

const asks = "data-asks";

/** Reports whether a question lies over the dialogs: the keys that close a dialog are the question's. */
const isAsking = () => document.querySelector(`[${asks}]`) !== null;

/** Asks whether the user means to lose something. */
export function Ask({ loss, stay, leave }: { loss: Loss; stay: () => void; leave: () => void }) {
  return (
    <Modal {...look} opened onClose={stay} title={loss.title} zIndex={300}>
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
