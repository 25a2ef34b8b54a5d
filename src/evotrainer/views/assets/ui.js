"use strict";
(() => {
  const $ = (id) => document.getElementById(id);

  // live ------------------------------------------------------------------------------------------------------------
  const live = $("live");
  // what a reader opened, chose or sorted, and what scripts draw, is left as it stands
  const OWN = new Set(["open", "aria-sort", "data-label", "data-built", "tabindex", "hidden", "aria-expanded", "aria-label"]);
  const keep = {
    beforeNodeMorphed: (old) => !(old.nodeType === 1 && old.matches(".charts[data-built], #tree, #sides, .pick")),
    beforeNodeRemoved: (node) => !(node.nodeType === 1 && node.matches(".tools, .ticks.own")),
    beforeAttributeUpdated: (name, node) => !(OWN.has(name) || (name === "class" && node.matches("table, th"))),
  };
  function take(message) {
    const generator = document.querySelector("meta[name=generator]").content;
    if (message.generator !== generator) { location.reload(); return; }
    const main = $("main");
    if ($("problem") && message.order.length) { location.reload(); return; }
    for (const s of [...main.querySelectorAll(":scope > section[id]")]) if (!message.order.includes(s.id)) s.remove();
    let before = null;
    for (const id of message.order) {
      let s = $(id);
      if (!s) {
        s = document.createElement("section");
        s.id = id;
        if (before) before.after(s); else main.prepend(s);
      }
      before = s;
    }
    for (const [id, html] of Object.entries(message.parts)) if ($(id)) Idiomorph.morph($(id), html, { morphStyle: "outerHTML", callbacks: keep });
    page.renew(message.data);
    page.dress();
    document.documentElement.dataset.seen = String((Number(document.documentElement.dataset.seen) || 0) + 1);
  }
  function say(text, lost) { live.textContent = text; live.classList.toggle("lost", lost); }
  function follow(after) {
    let last = after;
    const url = location.pathname.replace(/\/?$/, (end) => end || "/") + "events";
    const source = new EventSource(`${url}?after=${encodeURIComponent(last)}`);
    source.addEventListener("parts", (e) => { last = e.lastEventId || last; const sent = JSON.parse(e.data); say(`${sent.driven ? "live" : "up to date"} · event ${last}`, false); take(sent); });
    source.addEventListener("problem", (e) => say(JSON.parse(e.data).text, true));
    source.addEventListener("error", () => {
      say("connection lost, trying again; evotrainer ui opens it anew", true);
      if (source.readyState === EventSource.CLOSED) setTimeout(() => follow(last), 2000);
    });
    addEventListener("pagehide", () => source.close(), { once: true });
  }
  if (live) follow(live.dataset.position);

  // answers: the token came behind the # of the address, which no server sees -----------------------------------------
  const token = location.hash.match(/[#&]token=([\w-]+)/)?.[1];
  if (token) { sessionStorage.setItem("token", token); history.replaceState(null, "", location.pathname + location.search); }
  document.addEventListener("submit", async (e) => {
    if (e.target.id !== "answer") return;
    e.preventDefault();
    const f = e.target, said = f.querySelector("[role=status]"), choice = e.submitter?.value ?? "approve";
    if (choice === "abort" && !confirm("End the run here? evotrainer resume asks again.")) return;
    said.textContent = "sending …";
    const body = JSON.stringify({ to: f.closest("[data-to]").dataset.to, answer: choice, words: f.elements.words.value });
    const path = location.pathname.replace(/branch\/[^/]*$/, "");
    const sent = await fetch(`${path}answer`, { method: "POST", body, headers: { "Content-Type": "application/json", "X-EvoTrainer-Token": sessionStorage.getItem("token") ?? "" } }).catch(() => null);
    said.textContent = sent ? await sent.text() : "the server does not answer; try again";
    if (sent?.ok) for (const b of f.querySelectorAll("button")) b.disabled = true;
  });

  // search ----------------------------------------------------------------------------------------------------------
  const form = $("text-search");
  let running = null, skip = new URLSearchParams(location.search).get("skip");
  async function search() {
    running?.abort();
    const mine = running = new AbortController(), hits = $("hits"), said = $("searched");
    hits.replaceChildren();
    const q = form.elements.q.value;
    if (!q) { said.textContent = ""; return; }
    said.textContent = "searching …";
    const asked = new URLSearchParams({ q, ...(form.elements.regex.checked ? { regex: "1" } : {}), ...(skip ? { skip } : {}) });
    const here = new URL(location.href);
    for (const k of ["regex", "skip"]) here.searchParams.delete(k);
    for (const [k, v] of asked) here.searchParams.set(k, v);
    history.replaceState(null, "", here);
    try {
      const answer = await fetch(`${form.dataset.search}&${asked}`, { signal: mine.signal });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          const got = JSON.parse(line);
          if (got.html) hits.insertAdjacentHTML("beforeend", got.html);
          else if (got.error) said.textContent = got.error;
          else said.textContent = got.cut ? `${got.hits} found, more behind the last` : `${got.hits} found in ${got.read.toLocaleString("en")} rollouts${got.done ? "" : ", searching …"}`;
        }
      }
    } catch (e) { if (e.name !== "AbortError") said.textContent = `the search ended: ${e.message}; try again`; }
  }
  form?.addEventListener("submit", (e) => { e.preventDefault(); skip = null; search(); });
  if (form?.elements.q.value) search();
  $("filters")?.addEventListener("change", (e) => { if (e.target.matches("select")) e.target.form.requestSubmit(); });
  // empty fields make no address longer
  $("filters")?.addEventListener("submit", (e) => { for (const x of e.target.elements) if (x.name && (!x.value || (x.name === "sort" && !x.selectedIndex))) x.disabled = true; });
  addEventListener("pageshow", () => { for (const x of $("filters")?.elements ?? []) x.disabled = false; });

  // a group ---------------------------------------------------------------------------------------------------------
  const columns = document.querySelector(".columns");
  if (columns) {
    const hit = $("hit") ?? document.querySelector(".attempt.chosen");
    hit?.scrollIntoView({ block: "center", inline: "center" });
    document.addEventListener("keydown", (e) => {
      if (e.target.matches("input, select, textarea") || e.ctrlKey || e.metaKey || e.altKey) return;
      const by = { j: 1, k: -1 }[e.key];
      if (by) columns.scrollBy({ left: by * (columns.firstElementChild.offsetWidth + 14), behavior: "smooth" });
    });
  }
})();
