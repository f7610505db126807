/** Texts as JupyterLab shows them without a translation. */
export const trans = {
  __: (text, ...values) => text.replace(/%(\d+)/g, (_, number) => String(values[Number(number) - 1]))
};
