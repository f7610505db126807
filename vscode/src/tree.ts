/**
 * The view *Remote GPUs*: the nodes, and of each its kernels, its GPUs, and who waits. It asks while it is visible.
 */
import * as vscode from 'vscode';

import type { IKernel } from './hub/border.js';
import type { Model } from './model.js';
import { clusterView, inertPath, kernelViews, nodeView, trans } from './shared/words.js';
import type { IGpuView, IKernelView, INodeOverview, INodeView, IProblem, IWaiterView } from './shared/words.js';

/** A row of the view. Commands get it as their argument. */
export class Row extends vscode.TreeItem {
  constructor(label: string, options: IRowOptions) {
    super(label, options.children?.length ? vscode.TreeItemCollapsibleState.Expanded : vscode.TreeItemCollapsibleState.None);
    this.children = options.children ?? [];
    this.id = options.id;
    this.description = options.description;
    this.tooltip = options.tooltip || [label, options.description].filter(Boolean).join('\n');
    this.iconPath = new vscode.ThemeIcon(options.icon, options.color ? new vscode.ThemeColor(options.color) : undefined);
    this.contextValue = options.context;
    this.kernelId = options.kernelId;
    this.specName = options.specName;
    this.accessibilityInformation = { label: [options.spoken ?? label, options.description].filter(Boolean).join(', ') };
  }

  readonly children: readonly Row[];
  readonly kernelId: string | undefined;
  readonly specName: string | undefined;
}

interface IRowOptions {
  readonly id: string;
  readonly icon: string;
  readonly color?: string;
  readonly description?: string;
  readonly tooltip?: string;
  /** What a screen reader says in place of the label. */
  readonly spoken?: string;
  /** Words on which menus depend. */
  readonly context?: string;
  readonly kernelId?: string;
  readonly specName?: string;
  readonly children?: readonly Row[];
}

export class Tree implements vscode.TreeDataProvider<Row>, vscode.Disposable {
  constructor(model: Model) {
    this._model = model;
    this._view = vscode.window.createTreeView('remoteGpu.view', { treeDataProvider: this, showCollapseAll: true });
    this._parts = [
      this._view,
      this._changed,
      model.changed(() => this._update()),
      this._view.onDidChangeVisibility(({ visible }) => this._watch(visible))
    ];
    this._watch(this._view.visible);
  }

  get onDidChangeTreeData(): vscode.Event<void> {
    return this._changed.event;
  }

  getTreeItem(row: Row): vscode.TreeItem {
    return row;
  }

  getChildren(row?: Row): Row[] {
    if (row) {
      return [...row.children];
    }
    const { overview } = this._model;
    return overview ? rowsOf(overview.nodes, overview.kernels, overview.time) : [];
  }

  dispose(): void {
    this._watching?.dispose();
    this._parts.forEach(part => part.dispose());
  }

  private _watch(visible: boolean): void {
    this._watching?.dispose();
    this._watching = visible ? this._model.watchOverview() : undefined;
  }

  private _update(): void {
    const { overview, problem } = this._model;
    this._view.message = problem || (overview ? undefined : trans.__('Asking the nodes…'));
    if (overview?.nodes.length === 0) {
      this._view.message = undefined; // the view's welcome says what to do
    }
    const now = overview?.time;
    if (now !== this._time) {
      this._time = now;
      this._changed.fire();
    }
  }

  private readonly _model: Model;
  private readonly _view: vscode.TreeView<Row>;
  private readonly _changed = new vscode.EventEmitter<void>();
  private readonly _parts: readonly vscode.Disposable[];
  private _watching: vscode.Disposable | undefined;
  private _time: number | undefined;
}

/** The rows at the top: each node, and the kernels whose node is not among them. */
export function rowsOf(nodes: readonly INodeOverview[], kernels: readonly IKernel[], now: number): Row[] {
  const views = kernelViews(trans, kernels, now);
  const hops = new Map(kernels.map(one => [one.id, one.hop]));
  const known = new Set(nodes.map(node => node.node));
  const others = views.filter(view => !known.has(hops.get(view.id) ?? ''));
  return [
    ...nodes.map(node => {
      const own = views.filter(view => hops.get(view.id) === node.node);
      return nodeRow(node, nodeView(trans, node, kernels, now), own, now);
    }),
    ...others.map(each => kernelRow(each))
  ];
}

function nodeRow(node: INodeOverview, view: INodeView, kernels: readonly IKernelView[], now: number): Row {
  const children = [
    ...(view.problem ? [problemRow(view.name, view.problem)] : []),
    ...kernels.map(each => kernelRow(each, view.name)),
    ...view.gpus.map(gpu => gpuRow(view.name, gpu)),
    ...view.queue.map(one => waiterRow(view.name, one)),
    ...(node.cluster ? clusterRows(node, now) : [])
  ];
  return new Row(view.name, {
    id: `node ${view.name}`,
    icon: view.problem ? 'warning' : 'server-environment',
    color: view.problem ? 'list.warningForeground' : undefined,
    description: [view.summary, view.models].filter(Boolean).join(' · '),
    context: view.problem?.login ? 'node signIn' : 'node',
    specName: view.spec ?? undefined,
    children
  });
}

function problemRow(node: string, { hop, cause, remedy }: IProblem): Row {
  const text = `${hop}: ${cause}`;
  return new Row(text, { id: `problem ${node}`, icon: 'info', description: remedy, tooltip: `${text}\n${remedy}` });
}

/** `parent`: the node below which the row is, and which it need not name. */
function kernelRow(view: IKernelView, parent = ''): Row {
  const place = view.place.split(' · ').filter(part => part !== parent).join(' · ');
  const [icon, color] = TONES[view.tone];
  const can = [
    'kernel',
    view.canInterrupt ? 'interrupt' : '',
    view.canStop ? 'stop' : '',
    view.canAttach ? 'attach' : '',
    view.tone === 'waiting' ? 'waiting' : '',
    view.hint.startsWith('/') ? 'notebook' : ''
  ];
  return new Row(inertPath(view.title), {
    id: `kernel ${view.id}`,
    icon,
    color,
    description: [view.state, place, view.note].filter(Boolean).join(' · '),
    tooltip: [view.hint, view.state, view.place, view.note, view.problem ? view.problem.cause : ''].filter(Boolean).join('\n'),
    spoken: trans.__('Kernel of %1', inertPath(view.title)),
    context: can.filter(Boolean).join(' '),
    kernelId: view.id
  });
}

function gpuRow(node: string, gpu: IGpuView): Row {
  return new Row(gpu.label, {
    id: `gpu ${node} ${gpu.key}`,
    icon: 'circuit-board',
    color: gpu.holder === 'free' ? 'charts.green' : gpu.holder === 'other' ? undefined : 'charts.blue',
    description: [inertPath(gpu.who), gpu.since, gpu.memory.text, gpu.usage.text, gpu.users, gpu.reason].filter(Boolean).join(' · '),
    tooltip: gpu.hint
  });
}

function waiterRow(node: string, one: IWaiterView): Row {
  const waits = one.waited ? trans.__('waits %1', one.waited) : trans.__('waits');
  return new Row(trans.__('%1. %2', one.place, inertPath(one.who)), {
    id: `waiter ${node} ${one.key}`,
    icon: 'clock',
    description: [waits, one.count].filter(Boolean).join(' · '),
    spoken: trans.__('Place %1 in the queue: %2', one.place, inertPath(one.who)),
    context: one.id ? 'waiter kernel waiting' : 'waiter',
    kernelId: one.id ?? undefined
  });
}

function clusterRows({ node, cluster }: INodeOverview, now: number): Row[] {
  const { partitions, jobs } = clusterView(trans, cluster!, now);
  return [
    ...partitions.map(one => new Row(one.name, {
      id: `partition ${node} ${one.key}`,
      icon: 'layers',
      description: [one.type, one.text].filter(Boolean).join(' · '),
      spoken: trans.__('Partition %1', one.name)
    })),
    ...jobs.map(one => new Row(trans.__('Job %1', one.id), {
      id: `job ${node} ${one.id}`,
      icon: 'tasklist',
      description: [one.name, one.state, one.detail].filter(Boolean).join(' · ')
    }))
  ];
}

/** The icon and colour of a kernel, whose state the text says as well. */
const TONES = {
  busy: ['play-circle', 'charts.blue'],
  idle: ['pass', 'charts.green'],
  waiting: ['clock', 'charts.yellow'],
  trouble: ['warning', 'list.warningForeground'],
  off: ['circle-outline', undefined]
} as const;
