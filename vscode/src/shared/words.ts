/**
 * What this extension has in common with the one for JupyterLab: the same words, from the same modules, in English.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import { inert } from '../hub/border.js';

export { basename, clock, duration, gibibytes } from '../../../labextension/src/format.js';
export { noticeOf } from '../../../labextension/src/notebook/noticeText.js';
export { kernelView, kernelViews, titleOf } from '../../../labextension/src/panel/kernelView.js';
export type { IKernelView, Tone } from '../../../labextension/src/panel/kernelView.js';
export { clusterView } from '../../../labextension/src/panel/clusterView.js';
export { nodeView } from '../../../labextension/src/panel/nodeView.js';
export type { IGpuView, INodeView, IWaiterView } from '../../../labextension/src/panel/nodeView.js';
export { textsOf } from '../../../labextension/src/prompts/prompt.js';
export type { IPrompt, PromptKind } from '../../../labextension/src/prompts/prompt.js';
export { viewOf } from '../../../labextension/src/status/view.js';
export { isHelpedByLogin, waitsForJob } from '../../../labextension/src/tokens.js';
export type { IGpuUse, IProblem } from '../../../labextension/src/tokens.js';
export type { IGpu, IKernelOverview, INodeOverview } from '../../../labextension/src/model/overview.js';
export { parseJournal } from '../../../labextension/src/outputs/journal.js';
export type { IOutputMessage, IRecord } from '../../../labextension/src/outputs/journal.js';

/** The name of a notebook, which may be anything, as VS Code shows it. */
export const inertPath = (name: string): string => inert(name);

const filled = (text: string, values: readonly unknown[]): string =>
  text.replace(/%(\d+)/g, (_, number: string) => String(values[Number(number) - 1]));

export const trans: TranslationBundle = {
  __: (text, ...values) => filled(text, values),
  _n: (one, many, count, ...values) => filled(count === 1 ? one : many, [count, ...values])
};
