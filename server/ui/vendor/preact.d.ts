// Types of preact.js for `make ui-check`; never served.
import type { VNode } from 'preact';
export { render } from 'preact';
export type { ComponentChildren, VNode } from 'preact';
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
export { signal } from '@preact/signals';
export type { ReadonlySignal, Signal } from '@preact/signals';
/** What stands in a template. A function in it is called by an element or a component with what it likes. */
type Hole =
  | ((...given: any[]) => unknown)
  | Hole[]
  | { [name: string]: Hole }
  | {} | null | undefined;
export function html(strings: TemplateStringsArray, ...values: Hole[]): VNode;
