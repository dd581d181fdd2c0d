// Types of preact.js for `make ui-check`; never served.
import type { VNode } from 'preact';
export { Fragment, h, render } from 'preact';
export type { ComponentChildren, VNode } from 'preact';
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
export { batch, computed, effect, signal, useComputed, useSignal, useSignalEffect } from '@preact/signals';
export type { ReadonlySignal, Signal } from '@preact/signals';
export function html(strings: TemplateStringsArray, ...values: unknown[]): VNode;
