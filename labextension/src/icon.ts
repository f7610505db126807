/**
 * Our icon: the drawing of the kernels' logo, in the colours of the theme.
 */
import { LabIcon } from '@jupyterlab/ui-components';

import svgstr from '../style/icons/remote-gpu.svg';

export const remoteGpuIcon = new LabIcon({ name: 'jupyter-gpu-kernel:remote-gpu', svgstr });
