// Credentials stay in this page's memory: nothing is kept in the browser.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  filter: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  tagsSorter: "alpha",
  validatorUrl: null,
});
