/** Rows as the hub sends them, and notebooks as VS Code has them. */
import { kernelsOf } from '../src/hub/border.js';
import type { IKernel } from '../src/hub/border.js';
import { Uri } from './vscode.js';

export const NOW = 1_800_000_000;

export const row = {
  id: 'k1',
  name: 'gpu2',
  node: 'gpu2',
  hop: 'gpu2',
  state: 'idle',
  link: 'up',
  gpus: ['GPU-a'],
  gpu_names: ['GPU 0 (NVIDIA A100)'],
  notebook: '/w/a.ipynb',
  round_trip_ms: 3
};

export function kernel(changes: object = {}): IKernel {
  return kernelsOf([{ ...row, ...changes }])[0]!;
}

export const notebook = {
  notebookType: 'jupyter-notebook',
  uri: Uri.file('/w/a.ipynb'),
  metadata: { metadata: { kernelspec: { name: 'gpu2' } } }
};
