/* bothworlds.js - ranks the slots of a page and reports clicks. No dependencies, no cookies.
 *
 *   const bw = new Bothworlds({ url: "https://rank.example", surface: "home" });
 *   const page = await bw.rank({ fallback: ["a", "b", "c"] });   // never throws: returns the fallback order on failure
 *   page.items                                                   // the items to show, by slot
 *   bw.click(0);                                                 // slot 0 was clicked
 *
 * A surface that counts rewards: new Bothworlds({ ..., objective: "rewards" }), and bw.reward(0, 0.3) instead of clicks.
 *
 * bw.attach(element) puts children with data-bw-item in the ranked order and reports clicks on them automatically.
 * Every list is reported as shown, or as not shown: the service learns only from lists that somebody saw.
 * Clicks are sent in batches, are retried, and are flushed when the page is hidden. The service counts each once.
 */
(function (global) {
  "use strict";

  const MAX_WAITING = 1000; // events that wait to be sent; beyond that the oldest is dropped
  const MAX_OPEN = 50; // lists that may still be clicked; a single-page application may request many
  const LATE_MS = 10000; // how long a list that comes too late is waited for, to report that it was not shown
  const BATCH = 50; // events per request: a beacon may carry 64 KiB, and a token takes about half a KiB

  class Bothworlds {
    constructor({ url, surface, key = "", timeoutMs = 300, flushMs = 2000, finalOnLeave = true, objective = "clicks", onError = () => {} }) {
      if (!url || !surface) throw new TypeError("Bothworlds requires the url of the service and the name of a surface");
      Object.assign(this, { url: String(url).replace(/\/+$/, ""), surface, key, timeoutMs, flushMs, finalOnLeave, objective, onError });
      this.page = null;
      this._waiting = new Map(); // event id -> {event_id, token, clicks, final, rewards, shown}
      this._open = new Map(); // event id -> page
      this._beaconed = new WeakSet();
      this._attached = new WeakMap(); // element -> AbortController of its click listeners
      this._inFlight = null;
      this._timer = null;
      this._failures = 0;
      if (global.document) {
        // On phones this is often the only event when a visitor leaves.
        global.document.addEventListener("visibilitychange", () => {
          if (global.document.visibilityState === "hidden") this._leave();
        });
        global.addEventListener("pagehide", (event) => {
          // A page in the back/forward cache may be restored and clicked. Any other is unloaded: its events are final.
          if (this.finalOnLeave && !event.persisted) for (const page of this._open.values()) this.done(page);
          this._leave();
        });
        global.addEventListener("online", () => this.flush());
      }
    }

    /* Requests a list. Never rejects: after timeoutMs, on any error or offline, it resolves to the fallback order
     * with learned: false. context has the labels of the visitor, {device: "phone", age: 34}. visitor is your id of the visitor, who then stays in the same arm. The list is reported as
     * shown: with shown: false, call shown() when it is on the page. */
    async rank({ shown = true, ...request } = {}) {
      const page = await this._rank(request);
      if (shown) this.shown(true, page);
      return page;
    }

    async _rank({ segment = "", context = {}, exclude = [], pins = [], fallback = [], visitor = "", requestId = newId() } = {}) {
      const body = { request_id: requestId };
      if (segment) body.segment = segment;
      if (Object.keys(context).length) body.context = context;
      if (visitor) body.visitor = String(visitor);
      if (exclude.length) body.exclude = exclude;
      if (pins.length) body.pins = pins;
      const requested = this._post(`/v1/surfaces/${encodeURIComponent(this.surface)}/rank`, body, this.timeoutMs + LATE_MS);
      try {
        const response = await inTime(requested, this.timeoutMs);
        this.page = { ...response, items: response.slots.map((slot) => slot.item), learned: true };
        this._open.set(response.event_id, this.page);
        if (this._open.size > MAX_OPEN) this._open.delete(this._open.keys().next().value);
      } catch (error) {
        this.onError(error);
        requested.then((response) => this.shown(false, response), () => {}); // it came too late
        const left = fallback.filter((item) => !exclude.includes(item));
        this.page = { event_id: "", token: "", arm: "fallback", slots: left.map((item, slot) => ({ slot, item })), items: left, learned: false };
      }
      return this.page;
    }

    /* Reports a click on a slot of a page. Repeated calls have no effect. */
    click(slot, page = this.page) {
      this._note(page, { clicks: [slot] });
    }

    /* Reports that the list of a page was shown, or with false that it was not. */
    shown(shown = true, page = this.page) {
      this._note(page, { shown });
    }

    /* Reports a reward from 0 to 1 for a slot of a page, if the surface counts rewards. The largest one counts. */
    reward(slot, value, page = this.page) {
      if (!(value >= 0 && value <= 1)) throw new RangeError(`a reward must be a number from 0 to 1; got ${value}`);
      this._note(page, { rewards: { [slot]: value } });
    }

    /* Reports that a page is final: no more clicks follow. Called automatically when the visitor leaves, unless
     * finalOnLeave is false. */
    done(page = this.page) {
      this._note(page, { final: true });
      if (page) this._open.delete(page.event_id);
    }

    /* Puts the children with data-bw-item in the ranked order, hides the others, and reports clicks on them. With the
     * objective "rewards" it reports nothing: call reward, with the slot in data-bw-slot of a child.
     * A second call requests a new list and reports clicks on that list only. */
    async attach(element, options = {}) {
      const children = [...element.querySelectorAll("[data-bw-item]")];
      const byName = new Map(children.map((child) => [child.dataset.bwItem, child]));
      const page = await this._rank({ fallback: [...byName.keys()], ...options });
      const slots = new Map(); // child -> its slot in this list; the element may get another list later
      if (page.learned) {
        const shown = page.items.map((name) => byName.get(name));
        const complete = !shown.includes(undefined); // otherwise the page cannot show the whole list
        this.shown(complete, page);
        if (!complete) {
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
      if (attached.learned && this.objective === "clicks") {
        if (this._attached.has(element)) this._attached.get(element).abort();
        const reports = new AbortController();
        this._attached.set(element, reports);
        const options = { capture: true, signal: reports.signal };
        element.addEventListener("click", report, options);
        element.addEventListener("auxclick", (event) => event.button === 1 && report(event), options);
      }
      return attached;
    }

    /* Sends all waiting events. Resolves to true if none is left, to false after a failed request. */
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

    _note(page, { clicks = [], final = false, rewards = {}, shown = null }) {
      if (!page || !page.event_id) return; // the fallback order has no event
      const known = this._waiting.get(page.event_id);
      const event = {
        event_id: page.event_id,
        token: page.token,
        clicks: [...new Set([...(known ? known.clicks : []), ...clicks])],
        final: final || Boolean(known && known.final),
        shown: shown ?? known?.shown ?? null,
      };
      const larger = { ...(known && known.rewards) };
      for (const slot of Object.keys(rewards)) larger[slot] = Math.max(larger[slot] || 0, rewards[slot]);
      if (Object.keys(larger).length) event.rewards = larger;
      this._waiting.set(page.event_id, event);
      while (this._waiting.size > MAX_WAITING) this._waiting.delete(this._waiting.keys().next().value);
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
        // A permanent error: a retry would fail again.
        if (error.status >= 400 && error.status < 500 && ![401, 403, 408, 429].includes(error.status)) this._forget(events);
        this._failures = Math.min(this._failures + 1, 10);
        return false;
      }
      this._failures = 0;
      this._forget(events);
      return true;
    }

    /* Removes sent events, unless they have changed meanwhile. */
    _forget(events) {
      for (const event of events) if (this._waiting.get(event.event_id) === event) this._waiting.delete(event.event_id);
    }

    /* Sends waiting events by beacon, which outlives the page. Its delivery is unknown, so a page that is shown again
     * sends the same events again; the service counts them once. */
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
        // A beacon has no Authorization header; a keepalive request has.
        fetch(target, { ...this._request(text), keepalive: true }).catch(() => {});
        return true;
      }
      // text/plain needs no CORS preflight, which an unloading page could not wait for.
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
        const response = await fetch(this.url + path, { ...this._request(JSON.stringify(body)), signal: stop.signal });
        if (!response.ok) throw Object.assign(new Error(`bothworlds responded ${response.status}`), { status: response.status });
        return await response.json();
      } finally {
        clearTimeout(timer);
      }
    }
  }

  /* Settles as the promise does, or rejects after some time; the promise goes on. */
  function inTime(promise, ms) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`bothworlds did not respond within ${ms} ms`)), ms);
    });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
  }

  function newId() {
    if (global.crypto.randomUUID) return global.crypto.randomUUID();
    // randomUUID exists in secure contexts (https) only.
    return Array.from(global.crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  global.Bothworlds = Bothworlds;
})(globalThis);
