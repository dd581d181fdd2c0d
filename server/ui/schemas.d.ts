// The API's types for `make ui-check`, generated from its OpenAPI document; never served.
import type { components } from '#api';
export type Schemas = components['schemas'];
