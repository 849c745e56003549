// SPDX-License-Identifier: Apache-2.0

// Reads a JSON array of Mermaid diagrams, and writes one with the error of each, or null.
import { text } from 'node:stream/consumers';
import { JSDOM } from 'jsdom';

// Mermaid cleans labels with the DOM of a browser.
globalThis.window = new JSDOM().window;
globalThis.document = window.document;
globalThis.Element = window.Element;
const { default: mermaid } = await import('mermaid');

const errors = [];
for (const diagram of JSON.parse(await text(process.stdin))) {
  errors.push(await mermaid.parse(diagram).then(() => null, error => error.message));
}
process.stdout.write(JSON.stringify(errors));
