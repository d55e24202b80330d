// Refreshes the changing part of a page, submits its forms on change, and adds copy buttons.
// Pages work without this script, but must be reloaded by hand.
"use strict";

(function () {
  const live = document.querySelector("[data-live]");
  const status = document.querySelector("[data-status]");

  for (const form of document.querySelectorAll("[data-choose]")) {
    form.addEventListener("change", () => form.submit());
    form.querySelector("button").hidden = true;
  }

  for (const block of document.querySelectorAll("pre.copy")) {
    const button = document.createElement("button");
    button.textContent = "Copy";
    button.className = "copier";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(block.textContent.trim());
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(block);
        button.textContent = "Selected: press Ctrl+C";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    block.after(button);
  }

  // CSS cannot detect which tables overflow, or how far they are scrolled.
  function markScrollable() {
    for (const region of document.querySelectorAll(".scroll")) {
      const hidden = region.scrollWidth - region.clientWidth;
      region.classList.toggle("overflows", hidden > 1);
      region.classList.toggle("more", hidden - region.scrollLeft > 1);
    }
  }
  addEventListener("resize", markScrollable);
  document.addEventListener("scroll", markScrollable, { capture: true, passive: true }); // scroll events do not bubble
  markScrollable();

  if (!live) return;

  // Returns a function that restores open sections, scroll positions and the focus after the content was replaced.
  function saveState() {
    const byId = (selector) => [...live.querySelectorAll(selector)].filter((element) => element.id);
    const sections = byId("details").map((element) => [element.id, element.open]);
    const scrolls = byId(".scroll").map((element) => [element.id, element.scrollLeft, element.scrollTop]);
    const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
    return () => {
      for (const [id, open] of sections) (document.getElementById(id) || {}).open = open;
      for (const [id, left, top] of scrolls) Object.assign(document.getElementById(id) || {}, { scrollLeft: left, scrollTop: top });
      if (focused) (document.getElementById(focused) || live).focus({ preventScroll: true });
    };
  }

  // A refresh would interrupt typing and deselect text.
  const busy = () => document.hidden || (document.activeElement && document.activeElement.matches("#live input"))
    || String(getSelection()).length > 0;

  async function refresh() {
    if (busy()) return;
    try {
      const response = await fetch(live.dataset.live, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(10000) });
      if (!response.ok || response.redirected) throw new Error(response.status);
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      const restore = saveState();
      live.replaceChildren(...fresh.body.childNodes);
      restore();
      markScrollable();
      status.textContent = "";
      live.classList.remove("stale");
      live.dataset.refreshed = Number(live.dataset.refreshed || 0) + 1;
    } catch {
      status.textContent = "The service does not respond. These are the last known figures; the page tries again every few seconds.";
      live.classList.add("stale");
    }
  }

  (async function () {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, 1000 * Number(live.dataset.every)));
      await refresh();
    }
  })();
})();
