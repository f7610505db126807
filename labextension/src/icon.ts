/**
 * Our icons: the drawing of the kernels' logo, in the colours of the theme.
 */
import { LabIcon } from '@jupyterlab/ui-components';

import addSvgstr from '../style/icons/add-remote-gpu.svg';
import svgstr from '../style/icons/remote-gpu.svg';

export const remoteGpuIcon = new LabIcon({ name: 'jupyter-gpu-kernel:remote-gpu', svgstr });

/** The same with a plus. */
export const addRemoteGpuIcon = new LabIcon({ name: 'jupyter-gpu-kernel:add-remote-gpu', svgstr: addSvgstr });

/** An icon as an image, for the cards of kernels in the launcher, which take no other icon. */
export function imageOf(icon: LabIcon): string {
  return `data:image/svg+xml,${encodeURIComponent(icon.svgstr)}`;
}
