// A page needs one object and one call. If the service or the script cannot be loaded, the page keeps its own order.
"use strict";

(async function () {
  if (typeof Bothworlds === "undefined") return;
  const url = new URLSearchParams(location.search).get("service") || "http://127.0.0.1:8080";
  const bw = new Bothworlds({ url, surface: "shop-carousel", timeoutMs: 500 });
  const segment = matchMedia("(max-width: 600px)").matches ? "mobile" : "desktop";
  const page = await bw.attach(document.querySelector("[data-carousel]"), { segment });
  document.querySelector("[data-note]").textContent = page.learned
    ? `Ranked by the service (${page.arm}).`
    : "The service did not respond: this is the page's own order.";
})();
