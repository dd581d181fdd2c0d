// Server-sent events, read with fetch: EventSource cannot send a key.
import {signal, useEffect, useRef, useState} from './vendor/preact.js';
import {Problem, request} from './api.js';
import {changed, staleSince} from './answers.js';

/** @typedef {import('./schemas').Schemas} Schemas */
/**
 * An event of a topic: a run's line, or what the topic now is.
 * @template {string} Topic
 * @typedef {{event: 'line', data: Schemas['LogLine'], id: string} |
 *   {event: 'changed' | 'ended', data: State<Topic>, id: string}} TopicEvent
 */
/**
 * @template {string} Topic
 * @typedef {Topic extends `run:${string}` ? Schemas['RunEvent'] : Topic extends `experiment:${string}` ?
 *   Schemas['ExperimentEvent'] : Topic extends 'overview' ? Schemas['Overview'] : unknown} State
 */
/** @typedef {{event: string, data: {topic: string, data: unknown}, id: string}} Message of the stream */

/**
 * Each event of a stream's body.
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} body
 * @returns {AsyncGenerator<Message>}
 */
export async function* events(body) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = '';
	let event = {event: 'message', data: '', id: ''};
	for (;;) {
		const {value, done} = await reader.read();
		if (done) return;
		const lines = (rest + value).split('\n');
		rest = /** @type {string} */ (lines.pop());
		for (const line of lines) {
			if (line === '') {
				if (event.data) yield {...event, data: JSON.parse(event.data)};
				event = {event: 'message', data: '', id: ''};
			} else {
				const colon = line.indexOf(':');
				const field = colon < 0 ? line : line.slice(0, colon);
				const text = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
				if (field === 'data') event.data += (event.data ? '\n' : '') + text;
				else if (field === 'event') event.event = text;
				else if (field === 'id') event.id = text;
			}
		}
	}
}

/** Listeners by topic. @type {Map<string, Set<(message: {event: string, data: unknown, id: string}) => void>>} */
const listeners = new Map();
/** Topics without a stream: they have ended, or are not known yet. An action reopens them. @type {Set<string>} */
const over = new Set();
/** The topics of this page's one stream. */
const topics = signal(/** @type {string[]} */ ([]));
const settle = () => {
	topics.value = [...listeners.keys()].filter(topic => !over.has(topic)).sort();
};

/** Reopen a topic that had ended, for example after a retry. @param {string} topic */
export function goesOn(topic) {
	over.delete(topic);
	settle();
	changed(topic);
}

/**
 * Subscribe to a topic: `overview`, `workers`, `experiment:7`, `run:12`. One stream carries all topics.
 * @template {string} Topic
 * @param {Topic | null} topic null subscribes to nothing
 * @param {(message: TopicEvent<Topic>) => void} listener
 */
export function useTopic(topic, listener) {
	const latest = useRef(listener);
	latest.current = listener;
	useEffect(() => {
		if (topic === null) return undefined;
		const own = (/** @type {{event: string, data: unknown, id: string}} */ message) =>
			latest.current(/** @type {TopicEvent<Topic>} */ (message));
		const those = listeners.get(topic) ?? new Set();
		listeners.set(topic, those.add(own));
		settle();
		return () => {
			those.delete(own);
			if (!those.size) {
				listeners.delete(topic);
				over.delete(topic);
			}
			settle();
		};
	}, [topic]);
}

/**
 * The latest state of a topic; null before its first event.
 * @template {string} Topic
 * @param {Topic} topic
 */
export function useLive(topic) {
	const [live, setLive] = useState(/** @type {State<Topic> | null} */ (null));
	useTopic(topic, message => {
		if (message.event !== 'line') setLive(message.data);
	});
	return live;
}

/**
 * Subscribe to a topic only while its run or experiment is under way: a run that has ended would send its whole log.
 * @param {string} topic
 * @param {boolean} underWay false also while the state is unknown
 */
export function useWhile(topic, underWay) {
	useEffect(() => {
		if (underWay) over.delete(topic);
		else over.add(topic);
		settle();
	}, [topic, underWay]);
}

/**
 * Reload the answers that follow a topic when it has changed, at most once a second.
 * @template {string} Topic
 * @param {Topic | null} topic
 * @param {(data: State<Topic>) => boolean} [isNews] whether the first event differs from what was loaded before it
 */
export function useFollow(topic, isNews = () => false) {
	const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
	const last = useRef(0);
	useTopic(topic, message => {
		if (message.event === 'line' || timer.current !== undefined) return;
		const first = last.current === 0 && !isNews(message.data);
		timer.current = setTimeout(
			() => {
				timer.current = undefined;
				last.current = Date.now();
				if (!first && topic) changed(topic);
			},
			Math.max(0, 1000 - (Date.now() - last.current))
		);
	});
	useEffect(() => () => clearTimeout(timer.current), []);
}

/** Keep the stream of all topics open while the page is visible; it resumes after the last event received. */
export function useStream() {
	const wanted = topics.value.join(' ');
	useEffect(() => {
		if (!wanted) return undefined;
		let stop = new AbortController();
		let lastId = '';
		const listen = async () => {
			stop.abort();
			stop = new AbortController();
			const {signal: mine} = stop;
			for (let pauseS = 0.5; !mine.aborted && !document.hidden; pauseS = Math.min(pauseS * 2, 8)) {
				try {
					const headers = lastId ? {'Last-Event-ID': lastId} : undefined;
					const response = await request('events', {
						params: {topic: wanted.split(' ')},
						signal: mine,
						...(headers ? {headers} : {})
					});
					staleSince.value = null;
					for await (const message of events(/** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (response.body))) {
						pauseS = 0.5;
						if (message.id) lastId = message.id;
						const {topic, data} = message.data;
						if (message.event === 'ended') over.add(topic);
						listeners.get(topic)?.forEach(listener => listener({...message, data}));
					}
					settle();
				} catch (error) {
					if (mine.aborted) return;
					if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429) return;
					staleSince.value ??= Date.now();
				}
				await new Promise(resolve => setTimeout(resolve, pauseS * 1000));
			}
		};
		const seen = () => {
			if (document.hidden) stop.abort();
			else void listen();
		};
		document.addEventListener('visibilitychange', seen);
		void listen();
		return () => {
			document.removeEventListener('visibilitychange', seen);
			stop.abort();
		};
	}, [wanted]);
}
