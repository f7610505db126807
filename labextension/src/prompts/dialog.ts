/**
 * The dialog of one question. All that machines say is shown as text.
 */
import { Dialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { textsOf } from './prompt';
import type { IPrompt, ITexts } from './prompt';
import type { IShown, Reply } from './queue';

/** Shows the question. `problem`: why the last answer cannot be right, or ''. */
export function showPrompt(prompt: IPrompt, problem: string, trans: TranslationBundle): IShown {
  const texts = textsOf(prompt, trans);
  const body = new PromptBody(prompt, problem, trans);
  const dialog = new Dialog<string>({
    title: texts.title,
    body,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.okButton({ label: texts.accept })
    ],
    focusNodeSelector: '.jp-RemoteGPU-promptField',
    ...(prompt.saveable ? { checkbox: keyringCheckbox(texts, trans) } : {})
  });
  dialog.addClass('jp-RemoteGPU-prompt');
  return {
    reply: dialog.launch().then(
      ({ button, value, isChecked }): Reply =>
        button.accept ? { answer: value ?? '', save: isChecked === true } : null,
      () => undefined // closed
    ),
    count: (position, total) => body.count(position, total),
    close: () => dialog.dispose()
  };
}

function keyringCheckbox(texts: ITexts, trans: TranslationBundle): Partial<Dialog.ICheckbox> {
  return {
    label: trans.__('Store in the system keyring'),
    caption: texts.keyring
  };
}

class PromptBody extends Widget implements Dialog.IBodyWidget<string> {
  constructor(prompt: IPrompt, problem: string, trans: TranslationBundle) {
    super();
    const texts = textsOf(prompt, trans);
    this._trans = trans;
    this._prompt = prompt;
    this.addClass('jp-RemoteGPU-promptBody');
    this.node.append(this._position, element('p', texts.question, prompt.again ? 'jp-RemoteGPU-promptAgain' : ''));
    if (prompt.kind === 'host') {
      this.node.append(
        element('p', trans.__('Fingerprint of its %1 key:', prompt.keyType)),
        element('code', prompt.fingerprint, 'jp-RemoteGPU-promptFingerprint')
      );
    } else {
      this.node.append(element('p', prompt.prompt, 'jp-RemoteGPU-promptWords'));
    }
    this.node.append(this._fieldWithLabel(texts.label));
    if (problem) {
      const shown = element('p', problem, 'jp-RemoteGPU-promptProblem');
      shown.setAttribute('role', 'alert');
      this.node.append(shown);
    }
    this.node.append(element('p', texts.purpose, 'jp-RemoteGPU-promptPurpose'));
  }

  getValue(): string {
    const value = this._field.value;
    this._field.value = ''; // the dialog stays in the page for a moment
    return this._prompt.kind === 'host' ? value.trim() : value;
  }

  /** Shows which question it is of how many, if there are several. */
  count(position: number, total: number): void {
    this._position.textContent = total > 1 ? this._trans.__('%1 of %2', position, total) : '';
    this._position.hidden = total <= 1;
  }

  private _fieldWithLabel(text: string): HTMLElement {
    const [label, row] = [element('label', text), element('div', '', 'jp-RemoteGPU-promptRow')];
    const isHost = this._prompt.kind === 'host';
    this._field.id = `jp-RemoteGPU-prompt-${this._prompt.id}`;
    this._field.className = 'jp-RemoteGPU-promptField jp-mod-styled';
    this._field.type = isHost ? 'text' : 'password';
    this._field.autocomplete = this._prompt.kind === 'code' ? 'one-time-code' : 'off';
    this._field.spellcheck = false;
    this._field.maxLength = 4096;
    label.htmlFor = this._field.id;
    row.append(this._field);
    if (!isHost) {
      row.append(this._showButton());
    }
    const both = element('div', '', 'jp-RemoteGPU-promptInput');
    both.append(label, row);
    return both;
  }

  private _showButton(): HTMLElement {
    const button = element('button', this._trans.__('Show'), 'jp-RemoteGPU-promptShow jp-mod-styled');
    button.type = 'button';
    button.setAttribute('aria-pressed', 'false');
    button.addEventListener('click', () => {
      const hidden = this._field.type === 'password';
      this._field.type = hidden ? 'text' : 'password';
      button.textContent = hidden ? this._trans.__('Hide') : this._trans.__('Show');
      button.setAttribute('aria-pressed', String(hidden));
      this._field.focus();
    });
    return button;
  }

  private readonly _trans: TranslationBundle;
  private readonly _prompt: IPrompt;
  private readonly _field = document.createElement('input');
  private readonly _position = element('p', '', 'jp-RemoteGPU-promptPosition');
}

function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  text: string,
  className = ''
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}
