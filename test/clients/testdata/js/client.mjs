// SPDX-License-Identifier: Apache-2.0
// Does with a resource what clients do: client.mjs KUBECONFIG CASE. Prints each step, and ends at the first that went wrong.
import assert from 'node:assert/strict';
import { once, EventEmitter } from 'node:events';
import { ApiException, CustomObjectsApi, KubeConfig, KubernetesObjectApi, PatchStrategy, Watch, makeInformer } from '@kubernetes/client-node';

const { run, resource, kind, apiVersion, namespace, ...given } = JSON.parse(process.argv[3]);
const [group, version] = apiVersion.split('/');
const mine = `run=${run}`; // items of others may be beside
const path = `/apis/${apiVersion}/${namespace ? `namespaces/${namespace}/` : ''}${resource}`;
const config = new KubeConfig();
config.loadFromFile(process.argv[2]);
const api = KubernetesObjectApi.makeApiClient(config);
const custom = config.makeApiClient(CustomObjectsApi);

const header = (name) => ({ apiVersion, kind, metadata: { name: `${run}-${name}`, ...(namespace && { namespace }) } });
const fresh = (name, labels) => {
  const object = { ...header(name), spec: given.spec };
  object.metadata.labels = { run, ...labels };
  return object;
};
const merge = (name, patch) => {
  const object = { ...header(name), ...patch };
  object.metadata = { ...header(name).metadata, ...patch.metadata };
  return api.patch(object, undefined, undefined, undefined, undefined, PatchStrategy.MergePatch);
};
const list = (labels = mine, fields) =>
  api.list(apiVersion, kind, namespace || undefined, undefined, undefined, undefined, fields, labels);
// Pages need this one: of a kind that it has no model of, the list of KubernetesObjectApi loses metadata.continue.
const customList = (options) => {
  const all = { group, version, namespace, plural: resource, labelSelector: mine, ...options };
  return namespace ? custom.listNamespacedCustomObject(all) : custom.listClusterCustomObject(all);
};
const names = (listed) => listed.items.map((o) => o.metadata.name.replace(`${run}-`, ''));

// refused returns the Status that an error must have as its body.
async function refused(code, reason, call) {
  const error = await call.then(() => assert.fail(`succeeded, want ${code} ${reason}`), (e) => e);
  assert(error instanceof ApiException, error);
  const status = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
  assert.deepEqual([error.code, status.kind, status.code, status.reason], [code, 'Status', code, reason]);
  return status;
}

// unlessStopped passes on what ended a watch, but for our own end of it, which the client says is an error too.
const unlessStopped = (seen, error) => error.name !== 'AbortError' && seen.emit('error', error);

// follow makes a change after the other, each when the one before was seen: as an event with this name, within a minute.
async function follow(seen, events) {
  const changes = [
    () => api.create(fresh('w')),
    () => merge('w', { spec: given.change }),
    () => api.delete(header('w')),
  ];
  for (const [i, event] of events.entries()) {
    const [[object]] = await Promise.all([
      once(seen, event, { signal: AbortSignal.timeout(60_000) }).catch((e) => assert.fail(`${event} not seen: ${e.cause ?? e}`)),
      changes[i](),
    ]);
    assert.equal(object.metadata.name, `${run}-w`, event);
  }
}

const steps = {
  async create() {
    for (const [i, name] of [...'abcde'].entries()) {
      const created = await api.create(fresh(name, { odd: String(i % 2) }));
      assert.equal((await api.read(header(name))).metadata.uid, created.metadata.uid);
    }
  },
  async read() {
    assert.deepEqual(names(await list()), [...'abcde']);
    assert.deepEqual(names(await list(`${mine},odd=1`)), ['b', 'd']);
    assert.equal((await customList()).items.length, 5);
  },
  async pages() {
    const found = [];
    let token;
    do {
      const page = await customList({ limit: 2, _continue: token });
      found.push(names(page));
      token = page.metadata.continue;
    } while (token);
    assert.deepEqual(found, [['a', 'b'], ['c', 'd'], ['e']]);
  },
  async merge_patch() {
    const { spec } = await merge('b', { spec: given.change });
    assert.deepEqual(spec, { ...spec, ...given.change });
    assert.deepEqual(names(await list(mine, given.fieldSelector)), ['b']);
  },
  async apply() {
    const apply = (manager, force) =>
      api.patch(fresh('a', { owner: manager }), undefined, undefined, manager, force, PatchStrategy.ServerSideApply);
    const { managedFields } = (await apply('first')).metadata;
    assert(managedFields.some((m) => m.manager === 'first' && m.operation === 'Apply'), JSON.stringify(managedFields));
    const status = await refused(409, 'Conflict', apply('second'));
    assert.deepEqual(status.details.causes.map((c) => c.field), ['.metadata.labels.owner']);
    assert.equal((await apply('second', true)).metadata.labels.owner, 'second');
  },
  async replace() {
    const old = await api.read(header('c'));
    const current = await merge('c', { metadata: { labels: { step: 'replace' } } });
    await refused(409, 'Conflict', api.replace(old));
    Object.assign(current.spec, given.change);
    assert.deepEqual((await api.replace(current)).spec, current.spec);
  },
  async errors() {
    await refused(404, 'NotFound', api.read(header('missing')));
    await refused(409, 'AlreadyExists', api.create(fresh('a')));
    const status = await refused(422, 'Invalid', api.create({ ...fresh('x'), spec: given.invalid }));
    assert.deepEqual(status.details.causes.map((c) => c.field), [given.invalidField]);
    await refused(403, 'Forbidden', api.list(apiVersion, given.forbidden));
  },
  async watch() {
    const { resourceVersion } = (await list()).metadata;
    const seen = new EventEmitter();
    const request = await new Watch(config).watch(path, { labelSelector: mine, resourceVersion },
      (type, object) => seen.emit(type, object), (e) => unlessStopped(seen, e ?? Error('the watch ended')));
    await follow(seen, ['ADDED', 'MODIFIED', 'DELETED']);
    request.abort();
  },
  async informer() {
    const seen = new EventEmitter();
    const informer = makeInformer(config, path, () => list(), mine);
    for (const event of ['add', 'update', 'delete']) informer.on(event, (object) => seen.emit(event, object));
    informer.on('error', (e) => unlessStopped(seen, e));
    await informer.start();
    assert.equal(informer.list().length, 5);
    await follow(seen, ['add', 'update', 'delete']);
    await informer.stop();
  },
  async delete() {
    assert.equal((await api.delete(header('e'))).status, 'Success');
    await refused(404, 'NotFound', api.read(header('e')));
    for (const [labelSelector, left] of [[`${mine},odd=1`, ['a', 'c']], [mine, []]]) {
      const options = { group, version, namespace, plural: resource, labelSelector };
      await (namespace ? custom.deleteCollectionNamespacedCustomObject(options) : custom.deleteCollectionClusterCustomObject(options));
      assert.deepEqual(names(await list()), left);
    }
  },
};

for (const [name, step] of Object.entries(steps)) {
  console.log(name);
  await step();
}
process.exit(0); // not when an idle connection has timed out
