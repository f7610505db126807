/**
 * Who waits for the GPUs of a node. The user's own kernels can be reordered, by dragging or with buttons.
 */
import { caretDownIcon, caretUpIcon } from '@jupyterlab/ui-components';
import React, { useEffect, useRef, useState } from 'react';

import { usePanel } from './context';
import type { IWaiterView } from './nodeView';
import { IconButton } from './parts';
import { moved, priorities } from './queue';

/** Milliseconds after a change until the order is shown that the node reports, whatever it is. */
const FOLLOWS_WITHIN = 15000;

interface IMine extends IWaiterView {
  readonly id: string;
}

export function QueueList({ node, queue }: { node: string; queue: readonly IWaiterView[] }): JSX.Element {
  const { trans } = usePanel();
  const { order, move, announcement, list } = useOrder(node, queue.filter(isMine));
  const [dragged, setDragged] = useState<string | null>(null);
  const [over, setOver] = useState<string | null>(null);
  // The user's own kernels keep the places that they have among the others'.
  let next = 0;
  const shown = queue.map(one => (isMine(one) ? { ...(order[next++] ?? one), place: one.place } : one));
  const drop = (id: string): void => {
    if (dragged && dragged !== id) {
      move(dragged, order.findIndex(each => each.id === id));
    }
    setDragged(null);
    setOver(null);
  };
  return (
    <section aria-label={trans.__('Waiting for GPUs of %1', node)} className="jp-RemoteGPU-queue">
      <h5>{trans._n('1 kernel waits', '%1 kernels wait', queue.length)}</h5>
      <ol ref={list}>
        {shown.map(one => (
          <li
            key={one.id ?? one.key}
            className="jp-RemoteGPU-waiter"
            data-mine={one.id !== null || undefined}
            data-kernel={one.id ?? undefined}
            data-over={(one.id !== null && one.id === over && one.id !== dragged) || undefined}
            data-dragged={(one.id !== null && one.id === dragged) || undefined}
            draggable={one.id !== null && order.length > 1}
            onDragStart={event => {
              event.dataTransfer.effectAllowed = 'move';
              event.dataTransfer.setData('text/plain', one.who);
              setDragged(one.id);
            }}
            onDragOver={event => {
              if (dragged && one.id) {
                event.preventDefault();
                setOver(one.id);
              }
            }}
            onDrop={event => {
              event.preventDefault();
              drop(one.id ?? '');
            }}
            onDragEnd={() => drop(dragged ?? '')}
          >
            <Waiter one={one} order={order} move={move} />
          </li>
        ))}
      </ol>
      <span role="status" className="jp-RemoteGPU-hidden">
        {announcement}
      </span>
    </section>
  );
}

function Waiter(props: {
  one: IWaiterView;
  order: readonly IMine[];
  move: (id: string, index: number) => void;
}): JSX.Element {
  const { trans } = usePanel();
  const { one, order, move } = props;
  const index = order.findIndex(each => each.id === one.id);
  const button = (step: number, label: string): JSX.Element => (
    <IconButton
      icon={step < 0 ? caretUpIcon : caretDownIcon}
      label={label}
      className={step < 0 ? 'jp-mod-earlier' : 'jp-mod-later'}
      isDisabled={index + step < 0 || index + step >= order.length}
      onClick={() => move(one.id!, index + step)}
    />
  );
  return (
    <>
      <span className="jp-RemoteGPU-number">{one.place}.</span>
      <span className="jp-RemoteGPU-name" title={one.who}>
        {one.who}
      </span>
      <span className="jp-RemoteGPU-state">{[one.count, one.waited].filter(Boolean).join(' · ')}</span>
      {one.id !== null && order.length > 1 && (
        <span className="jp-RemoteGPU-order">
          {button(-1, trans.__('%1 earlier', one.who))}
          {button(1, trans.__('%1 later', one.who))}
        </span>
      )}
    </>
  );
}

/** The order of the user's own kernels: as the node says, or as the user wants it until the node has followed. */
function useOrder(
  node: string,
  mine: readonly IMine[]
): {
  order: readonly IMine[];
  move: (id: string, index: number) => void;
  announcement: string;
  list: React.RefObject<HTMLOListElement>;
} {
  const { trans, prioritize } = usePanel();
  const [wanted, setWanted] = useState<ReadonlyMap<string, number> | null>(null);
  const [announcement, setAnnouncement] = useState('');
  const list = useRef<HTMLOListElement>(null);
  const focused = useRef<string | null>(null);
  const moves = useRef(0);
  const order = wanted ? sorted(mine, wanted) : mine;
  // A row that moves in the page loses the focus.
  useEffect(() => {
    if (focused.current && list.current && !list.current.contains(document.activeElement)) {
      list.current.querySelector<HTMLElement>(focused.current)?.focus();
    }
    focused.current = null;
  });
  const move = (id: string, index: number): void => {
    const next = moved(order, id, index);
    const changes = priorities(next, id);
    const side = index < order.findIndex(each => each.id === id) ? 'earlier' : 'later';
    focused.current = `[data-kernel="${CSS.escape(id)}"] .jp-mod-${side}`;
    setWanted(new Map(next.map(each => [each.id, changes.get(each.id) ?? each.priority])));
    setAnnouncement(trans.__('%1 is now %2 of your %3', next[index]?.who, index + 1, next.length));
    const number = (moves.current += 1);
    const forget = (): void => {
      if (number === moves.current) {
        setWanted(null);
      }
    };
    void prioritize(node, changes).then(done => setTimeout(forget, done ? FOLLOWS_WITHIN : 0));
  };
  const hasFollowed = wanted !== null && mine.every((each, index) => each.id === order[index]!.id);
  useEffect(() => {
    if (hasFollowed) {
      setWanted(null);
    }
  }, [hasFollowed]);
  return { order, move, announcement, list };
}

function sorted(mine: readonly IMine[], wanted: ReadonlyMap<string, number>): IMine[] {
  const ids = [...wanted.keys()];
  const rank = (one: IMine): number => (wanted.has(one.id) ? ids.indexOf(one.id) : ids.length);
  return [...mine]
    .sort((a, b) => rank(a) - rank(b))
    .map(each => ({ ...each, priority: wanted.get(each.id) ?? each.priority }));
}

function isMine(one: IWaiterView): one is IMine {
  return one.id !== null;
}
