/**
 * The requests for the history of kernels, and whether their nodes can be asked now.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';

import type { IRemoteModel } from '../model/tokens';
import { get, kernelPath } from '../request';
import { mayAnswer, parseJournal } from './journal';
import type { IJournalSource } from './journalPoll';

/** In seconds: the outputs of all cells may be some megabytes, over a slow link. */
const TIMEOUT = 90;

/** `fetch` rejects as `get` does, and with 404 if there is no such remote kernel. */
export function journalSource(settings: ServerConnection.ISettings, model: IRemoteModel): IJournalSource {
  return {
    mayAnswer: kernelId => mayAnswer(model.kernels, kernelId),
    fetch: async (kernelId, cellId) => {
      const query = cellId ? URLExt.objectToQueryString({ cell: cellId }) : '';
      return parseJournal(await get(settings, kernelPath(kernelId, 'journal') + query, TIMEOUT));
    }
  };
}
