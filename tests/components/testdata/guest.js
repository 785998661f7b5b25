// What a program in JavaScript does with WASI 0.2.
import { getArguments, getEnvironment } from 'wasi:cli/environment@0.2.12';
import { exitWithCode } from 'wasi:cli/exit@0.2.12';
import { getStdin } from 'wasi:cli/stdin@0.2.12';
import { getStderr } from 'wasi:cli/stderr@0.2.12';
import { getStdout } from 'wasi:cli/stdout@0.2.12';
import { getDirectories } from 'wasi:filesystem/preopens@0.2.12';
import { now, subscribeDuration } from 'wasi:clocks/monotonic-clock@0.2.12';
import { getRandomBytes } from 'wasi:random/random@0.2.12';

let out; // imports must not be called while the component is made
const encoder = new TextEncoder(), decoder = new TextDecoder();
const say = (...words) => out.blockingWriteAndFlush(encoder.encode(words.join(' ') + '\n'));

function input() {
	const stdin = getStdin();
	let text = '';
	for (;;) {
		try {
			text += decoder.decode(stdin.blockingRead(4096n));
		} catch (e) {
			say('input ends:', e.payload?.tag ?? e);
			return text;
		}
	}
}

function files() {
	const [[root, name]] = getDirectories();
	say('preopen', name);
	root.createDirectoryAt('home/made');
	const file = root.openAt({}, 'home/made/file', { create: true, exclusive: true }, { read: true, write: true });
	say('written', file.write(encoder.encode('contents\n'), 0n));
	const [bytes, end] = file.read(100n, 0n);
	say('read', decoder.decode(bytes).trim(), end, file.stat().size, file.stat().type);
	root.renameAt('home/made/file', root, 'home/moved');
	try {
		root.openAt({}, 'home/none', {}, { read: true });
	} catch (e) {
		say('none:', e.payload);
	}
}

export const run = {
	run() {
		out = getStdout();
		say(getArguments().slice(1).join(','), JSON.stringify(getEnvironment().filter(([name]) => name === 'A')));
		say(input().split('\n').map((line) => line.replace(/(\w+)/g, '<$1>')).join('|'));
		files();
		const start = now();
		subscribeDuration(10_000_000n).block();
		say('slept', now() - start >= 10_000_000n, getRandomBytes(16n).length);
		say(JSON.stringify({ sum: [...Array(1000).keys()].reduce((a, b) => a + b), sorted: [3, 1, 2].sort(), big: (2n ** 80n).toString() }));
		console.log('through', 'the console', [1, 2]);
		getStderr().blockingWriteAndFlush(encoder.encode('done\n'));
		exitWithCode(5);
	},
};
