/**
 * The notebooks of the page, each from when it can be used.
 */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

/** Calls `follow` with each notebook, open now or later, when its file is loaded and the kernelspecs are known. */
export function eachNotebook(app: JupyterFrontEnd, tracker: INotebookTracker, follow: (panel: NotebookPanel) => void): void {
  const add = async (panel: NotebookPanel): Promise<void> => {
    await Promise.all([panel.context.ready, app.serviceManager.kernelspecs.ready]);
    if (!panel.isDisposed) {
      follow(panel);
    }
  };
  tracker.forEach(panel => void add(panel));
  tracker.widgetAdded.connect((_, panel) => void add(panel));
}
