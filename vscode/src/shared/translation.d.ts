/** The part of JupyterLab's translator that the modules shared with labextension/ use. */
export interface TranslationBundle {
  __(text: string, ...values: unknown[]): string;
  _n(one: string, many: string, count: number, ...values: unknown[]): string;
}
