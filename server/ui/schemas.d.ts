// The API's types for `make ui-check`, generated from its OpenAPI document; never served.
import type { components, paths } from '#api';
export type Schemas = components['schemas'];

/** The schema of a setting in the OpenAPI document. */
export interface Field {
	type?: string;
	enum?: string[];
	anyOf?: Field[];
	minimum?: number;
	maximum?: number;
	description: string;
	examples?: string[];
	'x-default'?: string | number | boolean;
	'x-default-of'?: string;
	'x-role'?: string;
	'x-local'?: boolean;
	'x-group'?: string;
	'x-unread'?: Record<string, string>;
}
export type Fields = Record<string, Field>;

type Json<Responses> = {
	[Status in keyof Responses & (200 | 201 | 202)]: Responses[Status] extends {content: {'application/json': infer Body}}
		? Body
		: never;
}[keyof Responses & (200 | 201 | 202)];
// Whether a path, such as runs/${number}/steps, is one of a template, such as runs/{run_id}/steps: part by part.
type Fits<Path extends string, Template extends string> = Template extends `${infer Want}/${infer Wants}`
	? Path extends `${infer Part}/${infer Parts}`
		? FitsPart<Part, Want> extends true
			? Fits<Parts, Wants>
			: false
		: false
	: Path extends `${string}/${string}`
		? false
		: FitsPart<Path, Template>;
type FitsPart<Part extends string, Want extends string> = Want extends `{${string}}`
	? true
	: Part extends Want
		? true
		: false;

// An experiment's request as the form writes it: without some fields, null where one is emptied.
type Asked = Schemas['ExperimentRequest'];
export type Request = {[Name in Exclude<keyof Asked, 'base' | 'primary'>]?: Asked[Name] | null} & {
	base?: Record<string, unknown> | null;
	primary?: Schemas['Primary'] | string | null;
};

/** What the server answers to a method and a path below /api/v1; never for one that it does not have. */
export type AnswerOf<Path extends string, Method extends string = 'GET'> = Path extends '../../openapi.json'
	? {components: {schemas: {RunSpec: {properties: Fields}}}}
	: Path extends string
	? {
			[Template in keyof paths]: Template extends `/api/v1/${infer Below}`
				? Fits<Path, Below> extends true
					? paths[Template] extends {[M in Lowercase<Method>]: {responses: infer Responses}}
						? Json<Responses>
						: never
					: never
				: never;
		}[keyof paths]
	: never;
