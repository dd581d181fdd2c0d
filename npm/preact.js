// One module, so that a page loads one file and all of it shares one Preact.
import { h } from 'preact';
import htm from 'htm';

export { render } from 'preact';
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
export { signal } from '@preact/signals';
export const html = htm.bind(h);
