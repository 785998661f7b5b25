// Makes a component of WASI 0.2's command of a file in JavaScript:
//
//	node componentize.mjs FILE WIT WORLD COMPONENT
//
// It runs in the folder in which npm has installed package.json.
import { writeFile } from 'node:fs/promises';
import { componentize } from '@bytecodealliance/componentize-js';

const [file, wit, world, out] = process.argv.slice(2);
const made = await componentize({
	sourcePath: file,
	witPath: wit,
	worldName: world,
	disableFeatures: ['http', 'fetch-event'], // which would import wasi:http
});
await writeFile(out, made.component);
