/** Texts as they are in English, with their arguments, as JupyterLab's translator gives them without a language pack. */
const format = (text, args) => text.replace(/%(\d+)/g, (_, number) => args[number - 1]);

export const trans = {
  __: (text, ...args) => format(text, args),
  _n: (one, many, count, ...args) => format(count === 1 ? one : many, [count, ...args])
};
