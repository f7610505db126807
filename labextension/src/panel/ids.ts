/**
 * The ids of the panel and of its commands.
 */

import { OPEN_PANEL, SIGN_IN } from '../tokens';

export const PANEL_ID = 'jupyter-gpu-kernel-panel';

export namespace CommandIDs {
  export const show = OPEN_PANEL;
  export const refresh = 'jupyter-gpu-kernel:refresh';
  // Of other plugins, which may be missing.
  export const add = 'jupyter-gpu-kernel:add';
  /** With {name}: of a kernelspec. */
  export const signIn = SIGN_IN;
  // With {id}: of a kernel; without, the kernel of the current notebook.
  export const open = 'jupyter-gpu-kernel:open-notebook';
  export const attach = 'jupyter-gpu-kernel:attach';
  export const interrupt = 'jupyter-gpu-kernel:interrupt';
  export const restart = 'jupyter-gpu-kernel:restart';
  export const stop = 'jupyter-gpu-kernel:stop';
  export const log = 'jupyter-gpu-kernel:log';
}
