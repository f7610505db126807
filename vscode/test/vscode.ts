/** A stand-in for the module `vscode`: what the extension shows is recorded, and tests act as the user. */
type Listener<T> = (value: T) => unknown;

export class Disposable {
  static from(...parts: { dispose(): unknown }[]): Disposable {
    return new Disposable(() => parts.forEach(part => part.dispose()));
  }
  constructor(private readonly _dispose: () => unknown) {}
  dispose(): void {
    this._dispose();
  }
}

export class EventEmitter<T> {
  readonly event = (listener: Listener<T>): Disposable => {
    this._listeners.add(listener);
    return new Disposable(() => this._listeners.delete(listener));
  };
  fire(value: T): void {
    [...this._listeners].forEach(listener => listener(value));
  }
  dispose(): void {
    this._listeners.clear();
  }
  private readonly _listeners = new Set<Listener<T>>();
}

export class ThemeColor {
  constructor(readonly id: string) {}
}
export class ThemeIcon {
  constructor(readonly id: string, readonly color?: ThemeColor) {}
}
export class TreeItem {
  constructor(readonly label: string, readonly collapsibleState: number) {}
}
export class Uri {
  static file(path: string): Uri {
    return new Uri('file', path);
  }
  static from({ scheme, path }: { scheme: string; path: string }): Uri {
    return new Uri(scheme, path);
  }
  static parse(text: string): Uri {
    const [scheme, path] = text.split(/:(.*)/s);
    return new Uri(scheme!, path!);
  }
  constructor(readonly scheme: string, readonly path: string) {}
  get fsPath(): string {
    return this.path;
  }
  toString(): string {
    return `${this.scheme}:${this.path}`;
  }
}
export const TreeItemCollapsibleState = { None: 0, Collapsed: 1, Expanded: 2 };
export const StatusBarAlignment = { Left: 1, Right: 2 };
export const ProgressLocation = { Window: 10, Notification: 15 };

export class NotebookRange {
  constructor(readonly start: number, readonly end: number) {}
}
export class NotebookCellData {
  metadata: unknown;
  outputs: NotebookCellOutput[] = [];
  executionSummary: unknown;
  constructor(readonly kind: number, readonly value: string, readonly languageId: string) {}
}
export class NotebookCellOutput {
  constructor(readonly items: NotebookCellOutputItem[]) {}
}
export class NotebookCellOutputItem {
  static stdout = (text: string): NotebookCellOutputItem => this.text(text, 'application/vnd.code.notebook.stdout');
  static stderr = (text: string): NotebookCellOutputItem => this.text(text, 'application/vnd.code.notebook.stderr');
  static error = (error: object): NotebookCellOutputItem => this.text(JSON.stringify(error), 'application/vnd.code.notebook.error');
  static text(text: string, mime: string): NotebookCellOutputItem {
    return new NotebookCellOutputItem(Buffer.from(text), mime);
  }
  constructor(readonly data: Uint8Array, readonly mime: string) {}
}
export class NotebookCellStatusBarItem {
  command: unknown;
  constructor(readonly text: string, readonly alignment: number) {}
}
export const NotebookCellStatusBarAlignment = { Left: 1, Right: 2 };
export class NotebookEdit {
  static replaceCells = (range: NotebookRange, cells: NotebookCellData[]): NotebookEdit => new NotebookEdit(range, cells);
  constructor(readonly range: NotebookRange, readonly newCells: NotebookCellData[]) {}
}
export class WorkspaceEdit {
  /** As in VS Code it replaces what was set for this document before. */
  set(uri: Uri, edits: NotebookEdit[]): void {
    this.edits.set(uri.toString(), edits);
  }
  /** As in VS Code it counts no edit of a notebook. */
  readonly size = 0;
  readonly edits = new Map<string, NotebookEdit[]>();
}

/** A box, as `createInputBox` makes it. */
export class InputBox {
  title = '';
  prompt = '';
  placeholder = '';
  password = false;
  ignoreFocusOut = false;
  validationMessage = '';
  buttons: unknown[] = [];
  value = '';
  open = false;
  readonly accepted = new EventEmitter<void>();
  readonly hidden = new EventEmitter<void>();
  readonly changed = new EventEmitter<string>();
  readonly triggered = new EventEmitter<unknown>();
  readonly onDidAccept = this.accepted.event;
  readonly onDidHide = this.hidden.event;
  readonly onDidChangeValue = this.changed.event;
  readonly onDidTriggerButton = this.triggered.event;
  show(): void {
    this.open = true;
    user.boxes.push(this);
    user.happened.fire();
  }
  dispose(): void {
    this.open = false;
  }
  /** The user types this and presses Enter. */
  enter(value: string): void {
    this.value = value;
    this.changed.fire(value);
    this.accepted.fire();
  }
}

export class Progress {
  readonly messages: string[] = [];
  readonly cancelled = new EventEmitter<void>();
  open = true;
  constructor(readonly title: string, readonly cancellable: boolean) {}
}

/** What the user sees, and does. */
export const user = {
  happened: new EventEmitter<void>(),
  boxes: [] as InputBox[],
  progresses: [] as Progress[],
  messages: [] as string[],
  terminals: [] as { name: string; shellPath: string; shellArgs: string[] }[],
  items: [] as Record<string, unknown>[],
  executed: [] as unknown[][],
  edits: [] as NotebookEdit[],
  documents: [] as { uri: Uri; text: string }[],
  /** The buttons that the user presses, in turn, and what they choose from lists or enter. */
  presses: [] as (string | undefined)[],
  choices: [] as unknown[],
  lists: [] as unknown[][]
};

const DEADLINE = 10_000;

/** Waits until this is true. */
export async function until(condition: () => boolean): Promise<void> {
  const end = performance.now() + DEADLINE;
  while (!condition()) {
    if (performance.now() > end) {
      throw new Error(`not within ${DEADLINE} ms: ${condition}`);
    }
    await new Promise(resolve => setImmediate(resolve));
  }
}

const press = async (message: string, options: unknown): Promise<string | undefined> => {
  user.messages.push([message, (options as { detail?: string } | undefined)?.detail].filter(Boolean).join(' '));
  return user.presses.shift();
};

export const notebookOpened = new EventEmitter<unknown>();
export const notebookClosed = new EventEmitter<unknown>();
export const notebookChanged = new EventEmitter<unknown>();
export const activeChanged = new EventEmitter<unknown>();
export const stateChanged = new EventEmitter<{ focused: boolean }>();

export const window = {
  state: { focused: true },
  activeNotebookEditor: undefined as unknown,
  onDidChangeActiveNotebookEditor: activeChanged.event,
  onDidChangeWindowState: stateChanged.event,
  createInputBox: (): InputBox => new InputBox(),
  createStatusBarItem: (): object => {
    const item: Record<string, unknown> = { visible: false, show: () => (item.visible = true), hide: () => (item.visible = false), dispose: () => undefined };
    user.items.push(item);
    return item;
  },
  createTerminal: (options: (typeof user.terminals)[number]): object => {
    user.terminals.push(options);
    return { show: () => undefined };
  },
  createTreeView: (): object => ({ visible: false, onDidChangeVisibility: new EventEmitter().event, dispose: () => undefined }),
  showErrorMessage: press,
  showWarningMessage: press,
  showInformationMessage: press,
  showInputBox: async (): Promise<unknown> => user.choices.shift(),
  showQuickPick: async (items: unknown[]): Promise<unknown> => {
    const list = (await items) as unknown[];
    user.lists.push(list);
    const choice = user.choices.shift();
    return typeof choice === 'number' ? list[choice] : choice;
  },
  showTextDocument: async (): Promise<void> => undefined,
  withProgress: async (
    { title, cancellable }: { title: string; cancellable?: boolean },
    task: (progress: object, token: object) => Promise<unknown>
  ): Promise<unknown> => {
    const progress = new Progress(title, cancellable === true);
    user.progresses.push(progress);
    const report = ({ message }: { message: string }): unknown => progress.messages.push(message);
    const token = { isCancellationRequested: false, onCancellationRequested: progress.cancelled.event };
    progress.cancelled.event(() => (token.isCancellationRequested = true));
    try {
      return await task({ report }, token);
    } finally {
      progress.open = false;
    }
  }
};

const settings: Record<string, unknown> = {};
let provider: { provideTextDocumentContent(uri: Uri): string } | undefined;

export const workspace = {
  notebookDocuments: [] as unknown[],
  onDidOpenNotebookDocument: notebookOpened.event,
  onDidCloseNotebookDocument: notebookClosed.event,
  onDidChangeNotebookDocument: notebookChanged.event,
  getConfiguration: () => ({ get: (name: string, otherwise: unknown) => settings[name] ?? otherwise }),
  registerTextDocumentContentProvider: (_: string, given: typeof provider): Disposable => {
    provider = given;
    return new Disposable(() => undefined);
  },
  applyEdit: async (edit: WorkspaceEdit): Promise<boolean> => {
    user.edits.push(...[...edit.edits.values()].flat());
    return true;
  },
  openTextDocument: async (uri: Uri): Promise<object> => {
    const document = { uri, text: provider!.provideTextDocumentContent(uri) };
    user.documents.push(document);
    return document;
  }
};

export const registered = new Map<string, (argument?: unknown) => unknown>();

export const commands = {
  registerCommand: (name: string, run: (argument?: unknown) => unknown): Disposable => {
    registered.set(name, run);
    return new Disposable(() => registered.delete(name));
  },
  executeCommand: async (...words: unknown[]): Promise<void> => void user.executed.push(words)
};

export const notebooks = { registerNotebookCellStatusBarItemProvider: (): Disposable => new Disposable(() => undefined) };

/** The installed extensions, by their ids. */
export const installed = new Map<string, unknown>();

export const extensions = { getExtension: (id: string): unknown => installed.get(id) };
