// An HTTP filter: it stands before another server of its pod, refuses what is not for everybody, and
// masks the mail addresses in texts.
import { getEnvironment } from 'wasi:cli/environment@0.2.10';

const mail = /[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}/g; // bounds: a long text takes no longer for it
const longest = 400; // of a mail address

const mask = (text) => text.includes('@') ? text.replace(mail, '***') : text;

// masked is a stream of text whose mail addresses are "***". An address may come in two parts.
function masked(body) {
	const decoder = new TextDecoder(), encoder = new TextEncoder();
	let rest = '';
	return body.pipeThrough(new TransformStream({
		transform(bytes, to) {
			rest += decoder.decode(bytes, { stream: true });
			const end = rest.length - rest.slice(-longest).match(/\S*$/)[0].length;
			to.enqueue(encoder.encode(mask(rest.slice(0, end))));
			rest = rest.slice(end);
		},
		flush(to) {
			to.enqueue(encoder.encode(mask(rest + decoder.decode())));
		},
	}));
}

async function answer(request) {
	const { UPSTREAM: upstream = 'http://127.0.0.1:8081' } = Object.fromEntries(getEnvironment());
	const { pathname, search } = new URL(request.url);
	if (pathname.startsWith('/admin')) {
		return new Response('not for everybody\n', { status: 403 });
	}
	const { method, headers, body } = request;
	let from;
	try {
		from = await fetch(upstream + pathname + search, { method, headers, body });
	} catch (e) {
		return new Response(`the server does not answer: ${e.message}\n`, { status: 502 });
	}
	const head = new Headers(from.headers);
	head.set('x-filter', 'mask');
	if (!(from.headers.get('content-type') ?? '').startsWith('text/') || !from.body) {
		return new Response(from.body, { status: from.status, headers: head });
	}
	head.delete('content-length'); // a masked text has another one
	return new Response(masked(from.body), { status: from.status, headers: head });
}

addEventListener('fetch', (event) => event.respondWith(answer(event.request)));
