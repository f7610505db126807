/**
 * From the order of one's own waiting kernels to their priorities. Pure: no page, no network.
 *
 * Among the kernels of one user the one with the highest priority comes first, and of equals the one that has waited
 * longest; the nodes decide that (agent/gpus/sharing/turns.py).
 */

/** As the nodes limit it. */
export const MAX_PRIORITY = 99;

export interface IWaiting {
  readonly id: string;
  readonly priority: number;
  readonly since: number;
}

/** The order with the kernel `id` at `index`, counted without it. */
export function moved<T extends { readonly id: string }>(order: readonly T[], id: string, index: number): T[] {
  const one = order.find(each => each.id === id);
  const others = order.filter(each => each.id !== id);
  return one ? [...others.slice(0, index), one, ...others.slice(index)] : [...order];
}

/**
 * The priorities to set so that the kernels get GPUs in this order: {id: priority}, as few as possible.
 *
 * `id`: the kernel that was moved. Only its priority changes, unless there is no room between its neighbours.
 */
export function priorities(order: readonly IWaiting[], id: string): Map<string, number> {
  const index = order.findIndex(each => each.id === id);
  const one = order[index];
  if (!one || isOrdered(order)) {
    return new Map();
  }
  const fits = (priority: number): boolean =>
    isOrdered(order.slice(Math.max(0, index - 1), index + 2).map(each => (each === one ? { ...one, priority } : each)));
  const near = [order[index - 1], order[index + 1]].flatMap(each =>
    each ? [each.priority - 1, each.priority, each.priority + 1] : []
  );
  const found = near
    .filter(each => Math.abs(each) <= MAX_PRIORITY && fits(each))
    .sort((a, b) => Math.abs(a - one.priority) - Math.abs(b - one.priority))[0];
  const others = order.filter(each => each !== one);
  return found !== undefined && isOrdered(others) ? new Map([[id, found]]) : numbered(order);
}

/** All in steps of one, around the middle of the range. */
function numbered(order: readonly IWaiting[]): Map<string, number> {
  const first = Math.min(MAX_PRIORITY, Math.ceil(order.length / 2));
  const wanted = order.map((each, index) => [each, Math.max(-MAX_PRIORITY, first - index)] as const);
  return new Map(wanted.filter(([each, priority]) => each.priority !== priority).map(([each, p]) => [each.id, p]));
}

function isOrdered(order: readonly IWaiting[]): boolean {
  return order.every((each, index) => index === 0 || comesBefore(order[index - 1]!, each));
}

function comesBefore(a: IWaiting, b: IWaiting): boolean {
  if (a.priority !== b.priority) {
    return a.priority > b.priority;
  }
  return a.since !== b.since ? a.since < b.since : a.id <= b.id;
}
