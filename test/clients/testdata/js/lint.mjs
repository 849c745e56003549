// SPDX-License-Identifier: Apache-2.0
// Checks OpenAPI documents: lint.mjs FILE ... Prints the problems as "FILE RULE: message at place". All rules of Redocly are on but for these.
import { readFileSync } from 'node:fs';
import { createConfig, lintFromString } from '@redocly/openapi-core';

const off = [
  // A document is about any cluster: where that is and whose, it cannot say.
  'no-empty-servers', 'info-contact', 'info-license',
  // Names and forms of Kubernetes' conventions, which kube-apiserver's own documents have.
  'boolean-parameter-prefixes', 'no-path-trailing-slash', 'operation-4xx-problem-details-rfc7807', 'path-http-verbs-order', 'path-segment-plural',
  'request-mime-type', 'response-mime-type',
  // It finds "get" in "widgets" and "gadgets".
  'no-http-verbs-in-paths',
  // What the generators of Kubernetes write for no API.
  'operation-summary', 'operation-tag-defined', 'required-string-property-missing-min-length', 'scalar-property-missing-example', 'security-defined',
  // Kubernetes documents one error, 401, and that only for a server that names its security schemes in the document.
  'operation-4xx-response',
];
const config = await createConfig({ extends: ['all'], rules: Object.fromEntries(off.map((rule) => [rule, 'off'])) });
for (const file of process.argv.slice(2)) {
  for (const problem of await lintFromString({ source: readFileSync(file, 'utf8'), absoluteRef: file, config })) {
    console.log(`${file} ${problem.ruleId}: ${problem.message} at ${problem.location[0].pointer}`);
  }
}
