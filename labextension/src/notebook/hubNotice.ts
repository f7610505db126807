/**
 * Keeps the hub's own notice, that the node is out of reach, out of the cells of this page, which shows one itself.
 *
 * The hub's is an output. It is for front ends without this extension, and would be saved with the notebook.
 */
import type { ISessionContext } from '@jupyterlab/apputils';
import { KernelMessage } from '@jupyterlab/services';
import type { Kernel } from '@jupyterlab/services';

/** The hub's display ids of such notices begin so (`hub/kernel/core/displays.py`). */
const OFFLINE = 'jupyter-gpu-kernel-passing-offline-';

export function keepOutHubNotices(sessionContext: ISessionContext, isOurs: (kernel: Kernel.IKernelConnection) => boolean): void {
  const follow = (kernel: Kernel.IKernelConnection | null | undefined): void => {
    kernel?.anyMessage.connect((_, { msg, direction }) => {
      if (direction === 'send' && msg.header.msg_type === 'execute_request' && isOurs(kernel)) {
        // Not at once: the request is registered right after this signal.
        queueMicrotask(() => addHook(kernel, msg.header.msg_id));
      }
    });
  };
  follow(sessionContext.session?.kernel);
  sessionContext.kernelChanged.connect((_, { newValue }) => follow(newValue));
}

function addHook(kernel: Kernel.IKernelConnection, msgId: string): void {
  if (!kernel.isDisposed) {
    kernel.registerMessageHook(msgId, message => !isOfflineNotice(message));
  }
}

function isOfflineNotice(message: KernelMessage.IIOPubMessage): boolean {
  const transient = (message.content as { transient?: { display_id?: unknown } }).transient;
  return typeof transient?.display_id === 'string' && transient.display_id.startsWith(OFFLINE);
}
