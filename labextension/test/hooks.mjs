/**
 * Hooks of Node's module loader, for modules of `lib` that need a page: imports without a suffix are found, and
 * packages of JupyterLab that need a browser are replaced by `parts.mjs`.
 */
const NEED_A_BROWSER = ['@jupyterlab/cells', '@jupyterlab/notebook', '@lumino/widgets'];
const PARTS = new URL('./parts.mjs', import.meta.url).href;

export function resolve(specifier, context, next) {
  if (NEED_A_BROWSER.includes(specifier)) {
    return { url: PARTS, shortCircuit: true };
  }
  const isOurs = specifier.startsWith('.') && context.parentURL?.includes('/lib/');
  return next(isOurs && !specifier.endsWith('.js') ? `${specifier}.js` : specifier, context);
}
