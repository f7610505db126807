/**
 * The plugins of this extension. Each folder has one job and exports its plugin.
 */
import { add } from './add/plugin';
import { links } from './links/plugin';
import { longCells } from './longCells/plugin';
import { model } from './model/plugin';
import { notebook } from './notebook/plugin';
import { outputs } from './outputs/plugin';
import { panel } from './panel/plugin';
import { prompts } from './prompts/plugin';
import { running } from './running/plugin';
import { signIn } from './signIn/plugin';
import { status } from './status/plugin';
import { waiting } from './waiting/plugin';

export default [
  add,
  links,
  longCells,
  model,
  notebook,
  outputs,
  panel,
  prompts,
  running,
  signIn,
  status,
  waiting
];
