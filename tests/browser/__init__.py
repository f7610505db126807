"""JupyterLab in a real browser. A package, so that its tests share one browser and one server (pytest's scope)."""
