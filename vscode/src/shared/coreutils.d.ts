/** The type of JSON objects that the modules shared with labextension/ use. */
export type PartialJSONObject = { [key: string]: unknown };
