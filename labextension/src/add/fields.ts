/**
 * The fields of the form, and the request that they make. Pure: no page, no network.
 */
import type { IFields, IFound, IHost, IProbeRequest } from './types';

export const EMPTY: IFields = {
  destination: '',
  jumps: '',
  identity: '',
  config: '',
  setup: '',
  cwd: '',
  python: '',
  gpus: '1',
  slurm: false,
  partition: '',
  gpuType: '',
  time: '',
  cpus: '',
  mem: '',
  account: '',
  qos: '',
  name: '',
  replace: false
};

/** Fields with which another machine, or another Python, may be found. */
const SEARCHED: readonly (keyof IFields)[] = ['destination', 'jumps', 'identity', 'config', 'setup', 'slurm'];

/** The fields by the names that the server has for them. */
const BY_SETTING: Readonly<Record<string, keyof IFields>> = { gpu_type: 'gpuType' };

/** Whether the user has to search again after this change. */
export function changesMachine(before: IFields, after: IFields): boolean {
  return SEARCHED.some(key => before[key] !== after[key]);
}

/** The field with the server's name; undefined if the form has none. */
export function fieldOf(setting: string): keyof IFields | undefined {
  const name = BY_SETTING[setting] ?? setting;
  return name in EMPTY ? (name as keyof IFields) : undefined;
}

export function requestOf(fields: IFields): IProbeRequest {
  const { destination, jumps, identity, config, slurm } = fields;
  const settings: Record<string, unknown> = {
    gpus: count(fields.gpus),
    python: fields.python,
    cwd: fields.cwd,
    setup: fields.setup.split('\n').filter(line => line.trim())
  };
  if (slurm) {
    const { partition, gpuType, time, cpus, mem, account, qos } = fields;
    Object.assign(settings, { slurm, partition, gpu_type: gpuType, time, mem, account, qos });
    settings.cpus = cpus.trim() ? count(cpus) : 0;
  }
  const given = Object.entries(settings).map(([key, value]) => [key, typeof value === 'string' ? value.trim() : value]);
  return { destination, jumps, identity, config, settings: Object.fromEntries(given) };
}

/** Whether these requests ask for the same. */
export function isSame(one: IProbeRequest, other: IProbeRequest): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** The fields with what was chosen on the machine, where the user has not chosen. */
export function withFound(fields: IFields, found: IFound): IFields {
  const { slurm } = found;
  const none = !slurm && !found.gpus.length && !found.gpus_error;
  return {
    ...fields,
    name: fields.name || found.name,
    gpus: none ? '0' : fields.gpus,
    partition: fields.partition || (slurm?.chosen.partition ?? ''),
    time: fields.time || (slurm?.chosen.time ?? ''),
    gpuType: slurm?.chosen.gpu_type ?? fields.gpuType
  };
}

/** The fields without what was chosen on a machine. */
export function withoutFound(fields: IFields): IFields {
  const { name, python, gpus, partition, gpuType, time } = EMPTY;
  return { ...fields, name, python, gpus, partition, gpuType, time };
}

/** What the ssh configuration says of the host in this field, if it knows it. */
export function knownHost(hosts: readonly IHost[], destination: string): IHost | undefined {
  return hosts.find(host => host.name === destination.trim());
}

/** A whole number as such; anything else as the user wrote it, which the server refuses with a clear message. */
function count(text: string): number | string {
  return /^\s*-?\d{1,9}\s*$/.test(text) ? Number(text) : text;
}
