"use strict";
(() => {
  const $ = (id) => document.getElementById(id);

  // live ------------------------------------------------------------------------------------------------------------
  const live = $("live");
  // what a reader opened, chose or sorted, and what scripts draw, is left as it stands
  const OWN = new Set(["open", "aria-sort", "data-label", "data-built", "tabindex", "hidden", "aria-expanded", "aria-label"]);
  const keep = {
    beforeNodeMorphed: (old) => !(old.nodeType === 1 && old.matches(".charts[data-built], #tree, #sides, .pick, input, textarea")),
    beforeNodeRemoved: (node) => !(node.nodeType === 1 && node.matches(".tools, .ticks.own")),
    beforeAttributeUpdated: (name, node) => !(OWN.has(name) || (name === "class" && node.matches("table, th"))),
  };
  function take(message) {
    const generator = document.querySelector("meta[name=generator]").content;
    if (message.generator !== generator) { location.reload(); return; }
    const main = $("main");
    if ($("problem") && message.order.length) { location.reload(); return; }
    for (const s of [...main.querySelectorAll(":scope > section[id]")]) if (!message.order.includes(s.id)) s.remove();
    // another question is another form: what was written for it comes back by `restore`
    const asked = $("question");
    if (asked && message.parts.summary && !message.parts.summary.includes(`data-to="${asked.dataset.to}"`)) asked.remove();
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
    restore();
    document.documentElement.dataset.seen = String((Number(document.documentElement.dataset.seen) || 0) + 1);
  }
  // rollouts: how many there are now is told; what is shown stays until it is asked for
  function count(now, driven) {
    const bar = $("newer"), more = now - Number(bar.dataset.total);
    say(`${driven ? "live" : "up to date"} · ${now.toLocaleString("en")} rollouts`, false);
    bar.hidden = more <= 0;
    bar.firstChild.textContent = `${more.toLocaleString("en")} newer: show`;
    document.documentElement.dataset.seen = String(now);
  }
  $("newer")?.addEventListener("click", async () => {
    const here = new URL(location.href);
    here.searchParams.delete("start");
    const sent = await fetch(here).catch(() => null);
    if (!sent?.ok) { say("the server does not answer; try again", true); return; }
    const fresh = new DOMParser().parseFromString(await sent.text(), "text/html").getElementById("rollouts");
    history.replaceState(null, "", here);
    Idiomorph.morph($("rollouts"), fresh, { morphStyle: "outerHTML", callbacks: { ...keep, beforeNodeMorphed: (old) => keep.beforeNodeMorphed(old) && old.id !== "text-search" } });
    $("newer").hidden = true;
    scrollTo({ top: 0 });
  });
  function say(text, lost) { live.textContent = text; live.classList.toggle("lost", lost); }
  function follow(after) {
    let last = after;
    const url = location.pathname.replace(/\/?$/, (end) => end || "/") + "events", asked = new URLSearchParams(location.search);
    asked.set("after", last);
    const source = new EventSource(`${url}?${asked}`);
    source.addEventListener("parts", (e) => { last = e.lastEventId || last; const sent = JSON.parse(e.data); if ($("newer")) { count(sent.data.total ?? Number(last), sent.driven); return; } say(`${sent.driven ? "live" : "up to date"} · event ${last}`, false); take(sent); });
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
  // what was written is kept until it is taken, also for the next try at the same question
  const draft = (f) => `draft ${f.closest("[data-to]").dataset.to.replace(/\/\d+$/, "")}`;
  function restore() {
    const f = $("answer"), kept = f && sessionStorage.getItem(draft(f));
    if (kept) f.elements.words.value = kept;
  }
  document.addEventListener("input", (e) => { if (e.target.name === "words") sessionStorage.setItem(draft(e.target.form), e.target.value); });
  document.addEventListener("click", (e) => {
    if (!e.target.matches("[data-add]")) return;
    const f = e.target.form, { factor, value, why, words } = f.elements, said = f.querySelector("[role=status]");
    let all, changed = value.value;
    try { all = JSON.parse(words.value || "{}"); } catch (x) { said.textContent = `the answer below is no JSON: ${x.message}; mend it first`; return; }
    try { changed = JSON.parse(changed); } catch { /* a word */ }
    if (!value.value.trim() || !why.value.trim()) { said.textContent = "give a new value, and why it should help"; return; }
    words.value = JSON.stringify({ ...all, trials: [...(all.trials ?? []), { changes: { [factor.value]: changed }, why: why.value }] }, null, 1);
    words.dispatchEvent(new Event("input", { bubbles: true }));
    value.value = why.value = said.textContent = "";
  });
  document.addEventListener("submit", async (e) => {
    if (e.target.id !== "answer") return;
    e.preventDefault();
    const f = e.target, said = f.querySelector("[role=status]"), choice = e.submitter?.value ?? "approve";
    if (choice === "abort" && !confirm("End the run here? evotrainer resume asks again.")) return;
    said.textContent = "sending …";
    const kept = draft(f), body = JSON.stringify({ to: f.closest("[data-to]").dataset.to, answer: choice, words: f.elements.words.value });
    const path = location.pathname.replace(/branch\/[^/]*$/, "");
    const sent = await fetch(`${path}answer`, { method: "POST", body, headers: { "Content-Type": "application/json", "X-EvoTrainer-Token": sessionStorage.getItem("token") ?? "" } }).catch(() => null);
    said.textContent = sent ? await sent.text() : "the server does not answer; try again";
    if (!sent?.ok || choice === "check") return;
    sessionStorage.removeItem(kept);
    for (const b of f.querySelectorAll("button")) b.disabled = true;
  });

  restore();

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
