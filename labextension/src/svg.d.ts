/** JupyterLab's build gives an imported SVG file as a string. */
declare module '*.svg' {
  const svg: string;
  export default svg;
}
