/* bothworlds.js - ranks the slots of a page and reports what is clicked. No dependencies, no cookies.
 *
 *   const bw = new Bothworlds({ url: "https://rank.example", surface: "home" });
 *   const page = await bw.rank({ fallback: ["a", "b", "c"] });   // never throws: the page's own order if all else fails
 *   page.items                                                   // what to show, slot by slot
 *   bw.click(0);                                                 // slot 0 was clicked
 *
 * bw.attach(element) puts children with data-bw-item in the ranked order and reports clicks on them by itself.
 * Clicks are sent in batches, again if need be, and when the page is hidden. The service counts each once.
 */
(function (global) {
  "use strict";

  const MOST_WAITING = 1000; // what cannot be sent for long is given up, the oldest first
  const MOST_OPEN = 50; // lists of one page, of an application that never leaves it for instance
  const BATCH = 50; // a beacon may carry 64 KiB, and a token takes about half a KiB

  class Bothworlds {
    constructor({ url, surface, key = "", timeoutMs = 300, flushMs = 2000, finalOnLeave = true, onError = () => {} }) {
      if (!url || !surface) throw new TypeError("Bothworlds needs the url of the service and the name of a surface");
      Object.assign(this, { url: String(url).replace(/\/+$/, ""), surface, key, timeoutMs, flushMs, finalOnLeave, onError });
      this.page = null;
      this._waiting = new Map(); // event id -> {event_id, token, clicks, final}
      this._open = new Map(); // event id -> page that may still be clicked
      this._beaconed = new WeakSet();
      this._attached = new WeakMap(); // element -> what ends the reports of clicks on the list it showed before
      this._inFlight = null;
      this._timer = null;
      this._failures = 0;
      if (global.document) {
        // Phones often send no other sign that a visitor has gone.
        global.document.addEventListener("visibilitychange", () => {
          if (global.document.visibilityState === "hidden") this._leave();
        });
        global.addEventListener("pagehide", () => {
          // Nobody clicks on a page that is gone. Should it come back and be clicked, the service takes that as late.
          if (this.finalOnLeave) for (const page of this._open.values()) this.done(page);
          this._leave();
        });
        global.addEventListener("online", () => this.flush());
      }
    }

    /* What to show. Fails open: after timeoutMs, on any error or offline, the page's own order, not learned from. */
    async rank({ segment = "", exclude = [], pins = [], fallback = [], requestId = newId() } = {}) {
      const body = { request_id: requestId };
      if (segment) body.segment = segment;
      if (exclude.length) body.exclude = exclude;
      if (pins.length) body.pins = pins;
      try {
        const answer = await this._post(`/v1/surfaces/${encodeURIComponent(this.surface)}/rank`, body, this.timeoutMs);
        this.page = { ...answer, items: answer.slots.map((slot) => slot.item), learned: true };
        this._open.set(answer.event_id, this.page);
        if (this._open.size > MOST_OPEN) this._open.delete(this._open.keys().next().value);
      } catch (error) {
        this.onError(error);
        const left = fallback.filter((item) => !exclude.includes(item));
        this.page = { event_id: "", token: "", arm: "fallback", slots: left.map((item, slot) => ({ slot, item })), items: left, learned: false };
      }
      return this.page;
    }

    /* A slot of a page was clicked. Saying so twice changes nothing. */
    click(slot, page = this.page) {
      this._note(page, [slot], false);
    }

    /* There will be no more clicks on a page. Said by itself when the page is left, unless finalOnLeave is false. */
    done(page = this.page) {
      this._note(page, [], true);
      if (page) this._open.delete(page.event_id);
    }

    /* Put the children of an element that carry data-bw-item in the ranked order, hide the others, report clicks.
     * Attached again, the element gets a new list, and clicks are reported on that one from then on. */
    async attach(element, options = {}) {
      const children = [...element.querySelectorAll("[data-bw-item]")];
      const byName = new Map(children.map((child) => [child.dataset.bwItem, child]));
      const page = await this.rank({ fallback: [...byName.keys()], ...options });
      const slots = new Map(); // child -> its slot on this page; another list may come to the same element later
      if (page.learned) {
        const shown = page.items.map((name) => byName.get(name));
        // A list with an item that this page cannot show would be learned from as if it had been shown.
        if (shown.includes(undefined)) {
          this._open.delete(page.event_id);
          this.page = { ...page, event_id: "", learned: false };
          this.onError(new Error("the service ranks items that this page does not have"));
        } else {
          children.forEach((child) => {
            child.hidden = !shown.includes(child);
            delete child.dataset.bwSlot;
          });
          shown.forEach((child, slot) => {
            slots.set(child, slot);
            child.dataset.bwSlot = slot; // for style sheets
            child.parentNode.append(child);
          });
        }
      }
      const attached = this.page;
      const report = (event) => {
        const child = event.target.closest && event.target.closest("[data-bw-item]");
        if (slots.has(child)) this.click(slots.get(child), attached);
      };
      if (attached.learned) {
        if (this._attached.has(element)) this._attached.get(element).abort();
        const reports = new AbortController();
        this._attached.set(element, reports);
        const options = { capture: true, signal: reports.signal };
        element.addEventListener("click", report, options);
        element.addEventListener("auxclick", (event) => event.button === 1 && report(event), options);
      }
      return attached;
    }

    /* Send what waits. Resolves to true when nothing is left. */
    async flush() {
      clearTimeout(this._timer);
      this._timer = null;
      if (this._inFlight) await this._inFlight;
      while (this._waiting.size && !this._inFlight) {
        this._inFlight = this._send([...this._waiting.values()].slice(0, BATCH));
        const sent = await this._inFlight;
        this._inFlight = null;
        if (!sent) {
          this._later(Math.min(60000, this.flushMs * 2 ** this._failures) * (0.5 + Math.random()));
          return false;
        }
      }
      return this._waiting.size === 0;
    }

    _note(page, clicks, final) {
      if (!page || !page.event_id) return; // a page in its own order: nothing to learn from
      const known = this._waiting.get(page.event_id);
      const event = {
        event_id: page.event_id,
        token: page.token,
        clicks: [...new Set([...(known ? known.clicks : []), ...clicks])],
        final: final || Boolean(known && known.final),
      };
      this._waiting.set(page.event_id, event);
      while (this._waiting.size > MOST_WAITING) this._waiting.delete(this._waiting.keys().next().value);
      this._later(this.flushMs);
    }

    _later(ms) {
      if (this._timer === null) this._timer = setTimeout(() => this.flush(), ms);
    }

    async _send(events) {
      try {
        await this._post("/v1/feedback", { events }, 10000);
      } catch (error) {
        this.onError(error);
        // What the service will never take is not sent again.
        if (error.status >= 400 && error.status < 500 && ![401, 403, 408, 429].includes(error.status)) this._forget(events);
        this._failures = Math.min(this._failures + 1, 10);
        return false;
      }
      this._failures = 0;
      this._forget(events);
      return true;
    }

    /* Forget what was sent, unless something was added in the meantime. */
    _forget(events) {
      for (const event of events) if (this._waiting.get(event.event_id) === event) this._waiting.delete(event.event_id);
    }

    /* The page may go: a beacon outlives it. Nobody hears whether it arrived, so a page that comes back sends the same
     * events once more; the service counts them once. */
    _leave() {
      const events = [...this._waiting.values()].filter((event) => !this._beaconed.has(event));
      for (let start = 0; start < events.length; start += BATCH) {
        const batch = events.slice(start, start + BATCH);
        if (this._beacon({ events: batch })) batch.forEach((event) => this._beaconed.add(event));
      }
    }

    _beacon(body) {
      const target = this.url + "/v1/feedback";
      const text = JSON.stringify(body);
      if (this.key) {
        // A beacon cannot carry a key; a request that is kept alive can.
        fetch(target, { ...this._request(text), keepalive: true }).catch(() => {});
        return true;
      }
      // Plain text needs no permission asked for in advance, which a page that goes could not wait for.
      return Boolean(global.navigator.sendBeacon && global.navigator.sendBeacon(target, new Blob([text], { type: "text/plain" })));
    }

    _request(text) {
      const headers = { "Content-Type": "application/json" };
      if (this.key) headers.Authorization = `Bearer ${this.key}`;
      return { method: "POST", headers, body: text, credentials: "omit", cache: "no-store" };
    }

    async _post(path, body, timeoutMs) {
      const stop = new AbortController();
      const timer = setTimeout(() => stop.abort(), timeoutMs);
      try {
        const answer = await fetch(this.url + path, { ...this._request(JSON.stringify(body)), signal: stop.signal });
        if (!answer.ok) throw Object.assign(new Error(`bothworlds answered ${answer.status}`), { status: answer.status });
        return await answer.json();
      } finally {
        clearTimeout(timer);
      }
    }
  }

  function newId() {
    if (global.crypto.randomUUID) return global.crypto.randomUUID();
    // Pages without https have no randomUUID.
    return Array.from(global.crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  global.Bothworlds = Bothworlds;
})(globalThis);
