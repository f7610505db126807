/**
 * What the notice in a running cell says. Pure.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

// The imports have a suffix, for Node's test runner.
import { clock } from '../format.js';
import { isHelpedByLogin } from '../tokens.js';
import type { IRemoteKernel } from '../tokens';

export interface INotice {
  readonly text: string;
  /** Why, and what helps; “” if that is not known. */
  readonly detail: string;
  /** Whether to offer a sign-in. */
  readonly signIn: boolean;
}

/** Most interruptions are shorter, in seconds. */
const NOTICE_DELAY = 2;

/**
 * The notice for a cell that runs or waits; null if nothing is wrong.
 *
 * @param kernel the last row of its kernel that the server sent
 * @param serverAwaySince since when the page cannot reach the server
 * @param now in seconds since 1970
 * @param canSignIn whether the user can sign in here
 */
export function noticeOf(
  kernel: IRemoteKernel,
  serverAwaySince: number | null,
  now: number,
  trans: TranslationBundle,
  canSignIn: boolean
): INotice | null {
  if (serverAwaySince !== null) {
    return now - serverAwaySince < NOTICE_DELAY ? null : serverNotice(kernel, serverAwaySince, trans);
  }
  return kernel.link === 'away' && kernel.state !== 'ended' ? nodeNotice(kernel, trans, canSignIn) : null;
}

/** Whether a cell runs, also in a row of the overview, whose state is “away” while the node is out of reach. */
export function isBusy(kernel: IRemoteKernel): boolean {
  return kernel.state === 'busy' || !!kernel.busy_since;
}

function serverNotice(kernel: IRemoteKernel, since: number, trans: TranslationBundle): INotice {
  const text = trans.__('The browser has not reached the Jupyter server since %1; the kernel on %2 keeps running.', clock(since, true), kernel.node);
  return { text, detail: trans.__('What it prints will be here when the server is back.'), signIn: false };
}

function nodeNotice(kernel: IRemoteKernel, trans: TranslationBundle, canSignIn: boolean): INotice {
  const { node, away_since, error } = kernel;
  const cell = isBusy(kernel) ? trans.__('This cell keeps running.') : trans.__('This cell will run when the node is back.');
  const away = away_since
    ? trans.__('%1 has been out of reach since %2; the kernel keeps running.', node, clock(away_since, true))
    : trans.__('%1 is out of reach; the kernel keeps running.', node);
  const signIn = canSignIn && isHelpedByLogin(error);
  const remedy = signIn ? '' : error?.remedy ?? ''; // the button, and not a command for a terminal
  return {
    text: `${away} ${cell}`,
    detail: error ? `${error.hop}: ${error.cause}. ${remedy}`.trim() : '',
    signIn
  };
}
