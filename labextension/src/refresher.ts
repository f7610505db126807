/**
 * Fetches a list again when something has changed, one request at a time.
 */
import type { JupyterFrontEnd } from '@jupyterlab/application';

/** Refreshes a list when JupyterLab has started, at the server's event with this schema, and when the page is looked at. */
export function refreshAt(app: JupyterFrontEnd, schema: string, refresh: () => Promise<void>): void {
  app.serviceManager.events.stream.connect((_, event) => {
    if (event.schema_id === schema) {
      void refresh();
    }
  });
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) {
      void refresh(); // an event may have been missed
    }
  });
  void app.started.then(refresh);
}

export class Refresher<T> {
  constructor(fetch: () => Promise<T>, update: (fetched: T) => void) {
    this._fetch = fetch;
    this._update = update;
  }

  /** Fetches the list, and passes it on. Calls that come meanwhile lead to one more request. Never rejects. */
  async refresh(): Promise<void> {
    if (this._fetching) {
      this._again = true;
      return;
    }
    this._fetching = true;
    try {
      do {
        this._again = false;
        this._update(await this._fetch());
      } while (this._again);
    } catch {
      // The server cannot be reached or refuses: the next event, or the user's return to the page, tries again.
    } finally {
      this._fetching = false;
    }
  }

  private readonly _fetch: () => Promise<T>;
  private readonly _update: (fetched: T) => void;
  private _fetching = false;
  private _again = false;
}
