// Applies the theme and the density before the page is drawn. It is no module, because modules run too late for that.
for (const name of ["theme", "density"]) {
  const value = localStorage.getItem(`bartack.${name}`);
  if (value) document.documentElement.dataset[name] = value;
}
