/**
 * Remedies name options of the command line; in the form they name its fields. Pure: no page, no network.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

/** An option, with the word for its value if there is one. */
const OPTION = /(^|[\s(“])(--?[A-Za-z][a-z-]*)( PATH| N| NAME| KEY)?(?![\w-])/g;

/** The remedy with the labels of fields instead of options, where the form has a field. */
export function inForm(remedy: string, trans: TranslationBundle): string {
  const labels: Readonly<Record<string, string>> = {
    '-F': trans.__('SSH configuration file'),
    '-J': trans.__('Through (jump hosts)'),
    '-i': trans.__('Private key file'),
    '--account': trans.__('Account'),
    '--cpus': trans.__('CPUs'),
    '--cwd': trans.__('Working directory'),
    '--gpu-type': trans.__('Type of GPU'),
    '--gpus': trans.__('GPUs of each kernel'),
    '--mem': trans.__('Memory'),
    '--partition': trans.__('Partition'),
    '--python': trans.__('Python'),
    '--qos': trans.__('Quality of service (QOS)'),
    '--setup': trans.__('Set-up lines'),
    '--time': trans.__('Time limit')
  };
  return remedy.replace(OPTION, (all: string, before: string, option: string) => {
    const label = labels[option];
    return label ? `${before}“${label}”` : all;
  });
}
