import assert from 'node:assert/strict';
import { test } from 'node:test';

import { changesMachine, EMPTY, fieldOf, knownHost, requestOf, withFound } from '../lib/add/fields.js';
import { choices, gpuRow, gpuTypes, notes, partitionText, unfit, versions } from '../lib/add/found.js';
import { hopViews } from '../lib/add/progress.js';
import { inForm } from '../lib/add/remedy.js';
import { AddSession } from '../lib/add/session.js';
import { Refusal } from '../lib/add/types.js';
import { trans } from './trans.mjs';

const python = { path: '/opt/best/bin/python', version: '3.12.4', ipykernel: '6.29.5' };
const other = { path: '/usr/bin/python3', version: '3.11.2', ipykernel: '6.20.0', why_not: 'would do', usable: true };
const bare = { path: '/bin/python3', version: '3.9.1', ipykernel: '', why_not: 'has no ipykernel', usable: false };
const gpu = {
  index: 0,
  name: 'NVIDIA A100',
  memory_used_mib: 2048,
  memory_total_mib: 40960,
  utilization: 3,
  free: false,
  reason: 'bob uses it'
};
const found = {
  name: 'gpu2',
  python,
  others: [other, bare],
  unseen: [],
  gpus: [gpu],
  gpus_error: null,
  gpus_problem: '',
  home_problem: ''
};
const partitions = [
  { name: 'gpu', default: true, up: true, time_limit: '1-00:00:00', nodes: 2, gpus: [{ type: 'a100', per_node: 2, total: 2, free: 1 }] },
  { name: 'cpu', default: false, up: false, time_limit: 'infinite', nodes: 2, gpus: [] }
];
const slurm = { version: '22.05', partitions, chosen: { partition: 'gpu', time: '4:00:00' }, notes: [], test: 'now' };
const problem = { kind: 'ConnectError', hop: '', cause: 'no', remedy: '' };

test('the request has what the user entered, and Slurm only where it is', () => {
  const fields = { ...EMPTY, destination: 'gpu2', gpus: ' 2 ', setup: 'module load python\n\n', partition: 'gpu' };
  assert.deepEqual(requestOf(fields), {
    destination: 'gpu2',
    jumps: '',
    identity: '',
    config: '',
    settings: { gpus: 2, python: '', cwd: '', setup: ['module load python'] }
  });
  const settings = requestOf({ ...fields, slurm: true, cpus: '8', mem: ' 32G', gpuType: 'a100' }).settings;
  assert.deepEqual(settings, {
    gpus: 2,
    python: '',
    cwd: '',
    setup: ['module load python'],
    slurm: true,
    partition: 'gpu',
    gpu_type: 'a100',
    time: '',
    mem: '32G',
    account: '',
    qos: '',
    cpus: 8
  });
  assert.equal(requestOf({ ...fields, gpus: 'many' }).settings.gpus, 'many'); // the server refuses it
});

test('fields have names of the server, and some are about the machine', () => {
  assert.equal(fieldOf('gpu_type'), 'gpuType');
  assert.equal(fieldOf('destination'), 'destination');
  assert.equal(fieldOf('warn_before'), undefined);
  assert.ok(changesMachine(EMPTY, { ...EMPTY, jumps: 'login' }));
  assert.ok(!changesMachine(EMPTY, { ...EMPTY, gpus: '2', name: 'x', partition: 'gpu' }));
  const host = { name: 'gpu2', user: 'alice', port: 22, jumps: ['login'] };
  assert.equal(knownHost([host], ' gpu2 '), host);
  assert.equal(knownHost([host], 'gpu'), undefined);
});

test('what was found fills fields that the user has left empty', () => {
  assert.deepEqual([withFound(EMPTY, found).name, withFound(EMPTY, found).gpus], ['gpu2', '1']);
  assert.equal(withFound({ ...EMPTY, name: 'mine' }, found).name, 'mine');
  assert.equal(withFound(EMPTY, { ...found, gpus: [] }).gpus, '0');
  assert.equal(withFound(EMPTY, { ...found, gpus: [], gpus_error: 'the driver hangs' }).gpus, '1');
  const chosen = withFound({ ...EMPTY, time: '1:00:00' }, { ...found, gpus: [], slurm });
  assert.deepEqual([chosen.partition, chosen.time, chosen.gpus], ['gpu', '1:00:00', '1']);
});

test('the best Python is the first to choose, and others say why they cannot be', () => {
  assert.deepEqual(choices(found), [python, other]);
  assert.deepEqual(unfit(found), [bare]);
  assert.equal(versions(python, trans), 'Python 3.12.4, ipykernel 6.29.5');
  assert.equal(versions({ ...python, ipykernel: '' }, trans), 'Python 3.12.4');
});

test('GPUs and partitions have one line each', () => {
  assert.deepEqual(gpuRow(gpu, trans), ['0 NVIDIA A100', '2 of 40 GiB', '3 %', 'bob uses it']);
  const unknown = { index: null, name: null, memory_used_mib: null, memory_total_mib: null, utilization: null };
  assert.deepEqual(gpuRow({ ...unknown, free: true, reason: null }, trans), ['', 'unknown', 'unknown', 'free']);
  assert.equal(partitionText(partitions[0], trans), 'gpu (default): at most 1-00:00:00; 2 a100, 1 free');
  assert.equal(partitionText(partitions[1], trans), 'cpu: at most infinite; not in use; no GPUs');
  assert.deepEqual([gpuTypes(partitions, 'cpu'), gpuTypes(partitions, ''), gpuTypes(partitions, 'gpu')], [[], ['a100'], ['a100']]);
});

test('notes say what does not work on the machine', () => {
  assert.deepEqual(notes(found, EMPTY, trans), []);
  assert.match(notes({ ...found, gpus: [] }, EMPTY, trans)[0], /has no GPU/);
  assert.match(notes({ ...found, gpus: [], gpus_error: 'it hangs' }, EMPTY, trans)[0], /it hangs/);
  assert.match(notes({ ...found, gpus_problem: 'too few' }, EMPTY, trans)[0], /too few/);
  assert.deepEqual(notes({ ...found, gpus_problem: 'too few' }, { ...EMPTY, gpus: '0' }, trans), []);
  assert.deepEqual(notes({ ...found, gpus: [], slurm }, EMPTY, trans), []);
});

test('remedies name the fields of the form', () => {
  const remedy = text => inForm(text, trans);
  assert.equal(remedy('Give its jump host with -J.'), 'Give its jump host with “Through (jump hosts)”.');
  assert.equal(remedy('Name it: --python PATH'), 'Name it: “Python”');
  assert.equal(remedy("Add it: --setup 'module load x'"), "Add it: “Set-up lines” 'module load x'");
  assert.equal(remedy('run: bash x.sh -b -p ~/y'), 'run: bash x.sh -b -p ~/y');
  assert.equal(remedy('Use --gpu-type a100, or --sbatch=--x.'), 'Use “Type of GPU” a100, or --sbatch=--x.');
});

const running = { id: 'p', state: 'running', hops: ['login', 'gpu2'], steps: [], seconds: 0, error: null, field: '', command: '', found: null };

test('hops go from waiting to done, or one of them has failed', () => {
  const states = changes => hopViews({ ...running, ...changes }, trans).map(hop => [hop.state, hop.text]);
  assert.deepEqual(states({}), [['active', 'connecting…'], ['waiting', 'waiting']]);
  const steps = [
    { hop: 'login', step: 'reach', after: 0.1 },
    { hop: 'login', step: 'sign in', after: 0.3 },
    { hop: 'gpu2', step: 'host key', after: 1.1 }
  ];
  assert.deepEqual(states({ steps, seconds: 2 }), [['done', 'done in 1.0 s'], ['active', 'verifying the host key…']]);
  assert.deepEqual(states({ state: 'done', steps, seconds: 3.1 }), [['done', 'done in 1.0 s'], ['done', 'done in 2.0 s']]);
  assert.deepEqual(states({ state: 'done', seconds: 1 }), [['done', 'connected'], ['done', 'connected']]);
  const error = { ...problem, hop: 'login' };
  const failed = hopViews({ ...running, state: 'failed', steps, error }, trans);
  assert.deepEqual(failed.map(hop => hop.state), ['failed', 'waiting']);
  assert.equal(failed[0].problem, error);
  assert.deepEqual(states({ state: 'failed', steps, error: problem }).map(([state]) => state), ['done', 'failed']);
});

/** The server: probes go as `outcome` says, and `log` is what it was asked. */
class Server {
  constructor() {
    this.log = [];
    this.outcome = { state: 'done', found };
    this.polls = 1;
    this.names = [];
    this.session = new AddSession(this, async () => void this.log.push('refresh'), 0);
  }

  async hosts(config) {
    if (config) {
      throw new Refusal({ ...problem, cause: 'there is no file' }, 'config');
    }
    return [{ name: 'gpu2', user: 'alice', port: 22, jumps: [] }];
  }

  async specs() {
    return this.names.map(name => ({ name, display_name: name, settings: { route: [name] } }));
  }

  async start(request) {
    if (request.settings.gpus === 'many') {
      throw new Refusal(problem, 'gpus');
    }
    this.log.push(`start ${request.destination} ${request.settings.python} ${request.settings.gpus}`);
    this.left = this.polls;
    return { ...running, id: `p${this.log.length}` };
  }

  async probe(id) {
    return this.left-- > 0 ? { ...running, id } : { ...running, id, ...this.outcome };
  }

  async cancel(id) {
    this.log.push(`cancel ${id}`);
  }

  async write(probe, name, replace) {
    if (this.names.includes(name) && !replace) {
      throw new Refusal(problem, 'name', true);
    }
    this.log.push(`write ${probe} ${name}`);
    this.names.push(name);
    return { name, display_name: `Remote GPU (${name})`, settings: { route: [name] }, shadowed_by: '' };
  }
}

test('a machine is found and added, and only what has changed is checked again', async () => {
  const server = new Server();
  const { session } = server;
  await session.load();
  assert.equal(session.hosts.length, 1);
  session.set({ destination: 'gpu2' });
  await session.search();
  assert.equal(session.found, found);
  assert.equal(session.fields.name, 'gpu2');
  await session.add();
  assert.deepEqual(server.log, ['start gpu2  1', 'write p1 gpu2', 'refresh']);
  assert.equal(session.written.name, 'gpu2');

  session.set({ python: other.path, gpus: '2' });
  assert.ok(session.isTaken && session.found === found && session.written === null);
  await session.add();
  assert.deepEqual([session.problem.field, session.busy], ['name', null]);
  session.set({ replace: true });
  await session.add();
  assert.deepEqual(server.log.slice(3), ['start gpu2 /usr/bin/python3 2', 'write p4 gpu2', 'refresh']);
});

test('errors belong to a field, to a hop, or to the whole form', async () => {
  const server = new Server();
  const { session } = server;
  session.set({ destination: 'gpu2', gpus: 'many' });
  session.set({ gpus: 'many' });
  await session.search();
  assert.deepEqual([session.problem.field, session.busy], ['gpus', null]);
  session.set({ gpus: '1' });
  assert.equal(session.problem, null);
  server.outcome = { state: 'failed', error: problem, field: '' };
  await session.search();
  assert.deepEqual([session.problem, session.found, session.probe.state], [null, null, 'failed']);
  server.outcome = { state: 'failed', error: problem, field: 'partition' };
  await session.search();
  assert.equal(session.problem.field, 'partition');
  server.probe = async () => {
    throw new Error('the server is gone');
  };
  await session.search();
  assert.deepEqual([session.problem.cause, session.problem.field, session.busy], ['the server is gone', undefined, null]);
  session.set({ config: '/nope' });
  await session.load();
  assert.equal(session.problem.field, 'config');
});

test('another machine, a cancelled search and a closed form end the probe', async () => {
  for (const end of [
    session => session.set({ destination: 'gpu3' }),
    session => session.cancel(),
    session => session.dispose()
  ]) {
    const server = new Server();
    server.polls = Infinity;
    const { session } = server;
    session.set({ destination: 'gpu2' });
    const searching = session.search();
    await new Promise(done => session.changed.connect(() => session.probe && done()));
    end(session);
    await searching;
    assert.ok(server.log.includes('cancel p1'));
    assert.deepEqual([session.found, session.probe, session.busy], [null, null, null]);
  }
});
