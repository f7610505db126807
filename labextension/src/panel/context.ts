/**
 * What all components of the panel need.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { createContext, useContext } from 'react';

import type { Actions } from './actions';
import type { CollapsedNodes } from './collapsed';

export interface IPanelContext {
  readonly trans: TranslationBundle;
  readonly actions: Actions;
  readonly collapsed: CollapsedNodes;
  /** Executes a command of JupyterLab, or ours. */
  readonly execute: (command: string, args?: Record<string, string>) => void;
  /** Interrupts a kernel, without a question. */
  readonly interrupt: (kernel: string) => void;
  readonly hasCommand: (command: string) => boolean;
  /** Sets priorities of waiting kernels, after earlier changes; resolves to whether that succeeded. */
  readonly prioritize: (node: string, priorities: ReadonlyMap<string, number>) => Promise<boolean>;
}

export const PanelContext = createContext<IPanelContext | null>(null);

export function usePanel(): IPanelContext {
  const context = useContext(PanelContext);
  if (!context) {
    throw new Error('PanelContext is not provided');
  }
  return context;
}
