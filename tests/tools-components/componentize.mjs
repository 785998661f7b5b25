// Makes a component of WASI 0.2 of a file in JavaScript:
//
//	node componentize.mjs FILE WIT WORLD COMPONENT [FEATURE...]
//
// Without the features http and fetch-event it imports nothing of wasi:http. It runs in the folder in which npm has installed package.json.
import { writeFile } from 'node:fs/promises';
import { componentize } from '@bytecodealliance/componentize-js';

const [file, wit, world, out, ...features] = process.argv.slice(2);
const made = await componentize({
	sourcePath: file,
	witPath: wit,
	worldName: world,
	disableFeatures: ['http', 'fetch-event'].filter((f) => !features.includes(f)),
});
await writeFile(out, made.component);
