// One module, so that a page loads one file and all of it shares one Preact.
import { h } from 'preact';
import htm from 'htm';

export { Fragment, h, render } from 'preact';
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
export { batch, computed, effect, signal, useComputed, useSignal, useSignalEffect } from '@preact/signals';
export const html = htm.bind(h);
