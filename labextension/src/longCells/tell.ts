/**
 * Tells the user that a cell has ended: by a notification of the browser, by the tab's title, or in the page.
 *
 * Nothing of the cell is shown: notifications appear on locked screens, too.
 */
import { Notification as Toast } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { duration } from '../format';
import type { IAnnouncement } from './announcer';

export class Teller {
  constructor(trans: TranslationBundle) {
    this._trans = trans;
    document.addEventListener('visibilitychange', () => this._looked());
  }

  tell({ notebook, ok, seconds }: IAnnouncement): void {
    const time = duration(seconds, this._trans);
    const text = ok ? this._trans.__('A cell has ended after %1.', time) : this._trans.__('A cell has failed after %1.', time);
    if (!document.hidden) {
      return void Toast.emit(`${notebook}: ${text}`, ok ? 'success' : 'error', { autoClose: false });
    }
    this._setTitle(`${ok ? '✓' : '✗'} ${notebook}`);
    if (this.permission === 'granted') {
      const shown = new window.Notification(notebook, { body: text, tag: `jupyter-gpu-kernel:${notebook}` });
      shown.onclick = () => (window.focus(), shown.close());
    }
  }

  get permission(): NotificationPermission {
    return 'Notification' in window ? window.Notification.permission : 'denied';
  }

  /** Asks for the browser's permission, and says what happens without. Call it when the user switches this on. */
  async askPermission(): Promise<void> {
    if (this.permission === 'default') {
      await window.Notification.requestPermission();
    }
    if (this.permission !== 'granted') {
      Toast.info(this._trans.__('The browser does not permit notifications: only the title of the tab will say that a cell has ended.'));
    }
  }

  private _setTitle(title: string): void {
    this._title ??= document.title;
    this._shown = document.title = title;
  }

  private _looked(): void {
    if (!document.hidden && this._title !== null) {
      if (document.title === this._shown) {
        document.title = this._title;
      }
      [this._title, this._shown] = [null, ''];
    }
  }

  private readonly _trans: TranslationBundle;
  /** The title of before, while another one is shown. */
  private _title: string | null = null;
  private _shown = '';
}
