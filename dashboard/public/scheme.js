// The scheme that was chosen, or the system's, from the first paint on. Mantine keeps it from there.
(function () {
  const chosen = localStorage.getItem("scheme");
  const dark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.mantineColorScheme = dark ? "dark" : "light";
})();
