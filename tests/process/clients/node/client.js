// The queue server as node's `memcached` sees it: `node client.js PORT`. Fails at the first answer that is not the expected one.
"use strict";

const assert = require("node:assert/strict");
const { promisify } = require("node:util");
const Memcached = require("memcached");

const QUEUE = "node";

function connect() {
  const client = new Memcached(`127.0.0.1:${process.argv[2]}`, { poolSize: 1, timeout: 10000, retries: 0 });
  const verbs = ["set", "get", "del", "stats", "version", "flush"];
  const calls = Object.fromEntries(verbs.map((verb) => [verb, promisify(client[verb]).bind(client)]));
  return { ...calls, put: (item) => calls.set(QUEUE, item, 0), end: () => client.end() };
}

async function main() {
  const client = connect();
  const other = connect();
  assert.equal(await client.put("first"), true);
  await client.put({ second: 2 });
  assert.equal(await client.get(QUEUE), "first");
  assert.deepEqual(await client.get(QUEUE), { second: 2 });
  assert.equal(await client.get(QUEUE), undefined);

  setTimeout(() => other.put("late"), 100);
  assert.equal(await client.get(`${QUEUE}/t=8000`), "late");
  assert.equal(await client.get(`${QUEUE}/t=20`), undefined);

  await client.put("reliable");
  assert.equal(await client.get(`${QUEUE}/open`), "reliable");
  assert.equal(await other.get(QUEUE), undefined);
  assert.equal(await client.get(`${QUEUE}/abort`), undefined);
  assert.equal(await client.get(`${QUEUE}/open`), "reliable");
  client.end();
  assert.equal(await other.get(`${QUEUE}/t=8000/open`), "reliable");
  assert.equal(await other.get(`${QUEUE}/close/open`), undefined);

  await other.put("counted");
  const [stats] = await other.stats();
  assert.equal(Number(stats[`queue_${QUEUE}_items`]), 1);
  assert.equal(await other.del(QUEUE), true);
  assert.equal(await other.get(QUEUE), undefined);
  const [version] = await other.version();
  assert.match(version.version, /^\d+\.\d+/);
  assert.ok(await other.flush());
  other.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
