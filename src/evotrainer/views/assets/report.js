"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const el = (tag, attrs = {}, ...kids) => {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
    e.append(...kids);
    return e;
  };
  const svg = (tag, attrs = {}, ...kids) => {
    const e = document.createElementNS(SVG, tag);
    for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
    e.append(...kids);
    return e;
  };

  // colours ---------------------------------------------------------------------------------------------------------
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redrawAll());
  const probe = el("span", { hidden: "" });
  document.body.append(probe);
  // custom properties come back unresolved, a computed colour does not
  const colour = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };

  // lineage tree ----------------------------------------------------------------------------------------------------
  function drawTree() {
    if (!$("tree")) return;
    const root = d3.stratify().id((d) => d.id || "(base)").parentId((d) => d.parent === null ? undefined : d.parent || "(base)")(data.tree);
    // boxes share the width that there is; 7.2: a character's width, with a little to spare
    const GAP = 36, W = Math.max(236, Math.min(440, Math.floor(($("tree").clientWidth - 8 + GAP) / (root.height + 1)) - GAP)), H = 64, DX = W + GAP, DY = 78;
    const cut = (s, n = Math.floor((W - 42) / 7.2)) => s.length <= n ? s : s.slice(0, Math.max(s.lastIndexOf(" ", n - 1), n / 2)).replace(/[\s,;:→+-]+$/, "") + " …";
    d3.tree().nodeSize([DY, DX])(root);
    const nodes = root.descendants();
    if ($("tree").clientWidth < 520) { $("tree").replaceChildren(indented(root)); return; }
    const top = Math.min(...nodes.map((n) => n.x)), bottom = Math.max(...nodes.map((n) => n.x));
    const width = root.height * DX + W + 8, height = bottom - top + H + 8;
    // a slightly wide tree is shrunk to fit, a wide one scrolls
    const fit = Math.max(0.65, Math.min(1, ($("tree").clientWidth || width) / width));
    const out = svg("svg", { width: width * fit, height: height * fit, viewBox: `-4 ${top - H / 2 - 4} ${width} ${height}` });
    for (const l of root.links()) {
      const x0 = l.source.y + W, x1 = l.target.y, y0 = l.source.x, y1 = l.target.x, mid = (x0 + x1) / 2;
      out.append(svg("path", { class: l.target.data.on_path ? "link path" : "link", d: `M${x0},${y0}C${mid},${y0} ${mid},${y1} ${x1},${y1}` }));
    }
    for (const n of nodes) {
      const d = n.data;
      const a = svg("a", { href: d.id ? `#${encodeURIComponent(d.id)}` : "#summary", class: `k-${d.kind}${d.champion ? " champion" : ""}`, transform: `translate(${n.y},${n.x - H / 2})` });
      const text = (cls, y, s) => { const t = svg("text", { class: cls, x: 34, y }); t.textContent = cut(s); return t; };
      const about = svg("title"); about.textContent = d.about || "base policy";
      a.append(about, svg("rect", { width: W, height: H, rx: 8 }), svg("use", { href: `#i-${d.kind}`, class: "mark", x: 11, y: 10, width: 15, height: 15 }),
        text("title", 22, d.title + (d.champion ? " · champion" : "")), text("what", 39, d.change), text("score", 54, d.sub));
      out.append(a);
    }
    $("tree").replaceChildren(out);
  }

  // on a phone the same as an indented list: a wide drawing would hide the champion beyond its edge
  function indented(root) {
    const list = el("ul", { class: "tree-list" });
    root.eachBefore((n) => {
      const d = n.data, mark = svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("use", { href: `#i-${d.kind}` }));
      const row = el("li", { class: `k-${d.kind} depth-${Math.min(n.depth, 6)}` }, el("a", { href: d.id ? `#${encodeURIComponent(d.id)}` : "#summary" }, mark, el("b", {}, ` ${d.title}${d.champion ? " · champion" : ""} `), el("span", { class: "change" }, d.change), el("span", { class: "small muted" }, ` ${d.sub}`)));
      list.append(row);
    });
    return list;
  }

  // learning curves -------------------------------------------------------------------------------------------------
  const PREFERRED = ["reward", "score", "proxy_gap", "frac_reward_zero_std", "entropy", "completions/mean_length", "kl", "grad_norm"];
  const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4]];
  const dash = (i) => DASHES[i % 5];
  // one colour a branch in every chart; beyond eight they differ by their dashes
  const HUES = 8, slot = (b) => own(data.colours, b), hue = (b) => `--s${(slot(b) ?? 0) % HUES}`;
  // sums over the components that a branch pays: of branches that pay others they compare nothing
  const SUMS = ["reward", "reward_std", "group_std"], ALL = "\u0000all";
  const paid = (b) => Object.entries(own(data.weights, b) ?? {}).filter((p) => p[1]).map(([k, w]) => `${k} ${num(w)}`).sort().join(" + ");
  const charts = [];
  // names come from data: "constructor" must not find what every object has
  const own = (o, k) => o != null && Object.hasOwn(o, k) ? o[k] : undefined;
  // a key in words; the key itself stays in a title, for commands
  const title = (m) => own(data.words, m) ?? m;
  const nameOf = (t) => t.label ?? `seed ${t.seed}`;
  const num = (x) => x == null ? "–" : Math.abs(x) >= 100 ? x.toFixed(0) : String(Number(x.toPrecision(3)));

  function metricsOf(c) {
    const all = [...new Set(c.trials.flatMap((t) => Object.keys(t.y)))], first = c.first || PREFERRED;
    const rank = (m) => (first.indexOf(m) + 1) || 99;
    return all.sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  }
  // at each step the mean over a branch's seeds, and the lowest and the highest of them
  function spread(branch, metric) {
    const at = new Map();
    for (const t of data.curves[branch].trials) t.x.forEach((x, i) => {
      const y = own(t.y, metric)?.[i];
      if (y != null) at.set(x, [...(at.get(x) || []), y]);
    });
    const xs = [...at.keys()].sort((a, b) => a - b), of = (f) => xs.map((x) => f(at.get(x)));
    return { x: xs, y: of((v) => v.reduce((a, b) => a + b) / v.length), low: of((v) => Math.min(...v)), high: of((v) => Math.max(...v)) };
  }
  // what a chart draws, and what a reader must know of it
  function lines(branch, metric) {
    const many = (b) => data.curves[b].trials.length > 1;
    const mean = (b, rest) => { const { low, high, ...line } = spread(b, metric); return { ...line, hue: hue(b), ...(many(b) ? { low, high } : {}), ...rest }; };
    if (branch === ALL) {
      const names = Object.keys(data.curves).filter((b) => own(data.colours, b) !== undefined), kinds = new Set(names.map(paid));
      const note = SUMS.includes(metric) && kinds.size > 1 ? `Each branch is shown by what it pays itself (${names.map((b) => `${b}: ${paid(b)}`).join("; ")}): this compares only branches that pay the same.` : "";
      return [names.map((b) => mean(b, { label: b, width: 1.75, dash: dash(Math.floor(slot(b) / HUES)) })), note];
    }
    const c = data.curves[branch], known = c.parent && data.curves[c.parent];
    const out = c.trials.map((t, i) => {
      const keep = t.x.map((x, k) => [x, own(t.y, metric)?.[k]]).filter((p) => p[1] != null);
      return { label: nameOf(t), hue: slot(branch) === undefined ? `--s${i % HUES}` : hue(branch), dash: dash(i), width: 1.75, x: keep.map((p) => p[0]), y: keep.map((p) => p[1]) };
    });
    if (known && SUMS.includes(metric) && paid(branch) !== paid(c.parent)) return [out, `${c.parent} is not drawn: it pays ${paid(c.parent)}, ${branch} ${paid(branch)}.`];
    const start = data.start, comparable = (b) => !SUMS.includes(metric) || paid(branch) === paid(b);
    if (known) out.push(mean(c.parent, { label: `${c.parent} mean`, width: 1.25, dash: [3, 3] }));
    if (start && start !== c.parent && start !== branch && own(data.curves, start) && comparable(start)) out.push(mean(start, { label: `${start} (start) mean`, width: 1, dash: [1, 3] }));
    return [out, ""];
  }
  function drawChart(chart) {
    const { branch, box, select, at, note } = chart;
    chart.plot?.destroy();
    const [drawn, remark] = lines(branch, select.value);
    note.textContent = remark;
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const sparse = (u, i) => u.data[i].filter((v) => v != null).length < 12;
    const series = drawn.map((l) => ({ label: l.label, stroke: colour(l.hue), width: l.width, dash: l.dash, spanGaps: true, points: { show: sparse, size: 5, fill: colour("--surface") } }));
    const tables = drawn.map((l) => [l.x, l.y]), edges = [], bands = [];
    for (const l of drawn.filter((l) => l.high)) {
      const n = 1 + drawn.length + edges.length;
      for (const y of [l.high, l.low]) { edges.push({ stroke: "transparent", width: 0, spanGaps: true, points: { show: false } }); tables.push([l.x, y]); }
      bands.push({ series: [n, n + 1], fill: colour(l.hue).replace(/^rgb\((.*)\)$/, "rgba($1, .13)") });
    }
    const cols = uPlot.join(tables);
    const show = (u) => {
      const i = u.cursor.idx;
      at.textContent = i == null ? "" : `step ${num(u.data[0][i])}: ` + series.map((s, k) => u.data[k + 1][i] == null ? null : `${s.label} ${num(u.data[k + 1][i])}`).filter(Boolean).join(", ");
    };
    chart.plot = new uPlot({
      width: Math.max(box.clientWidth, 200), height: 170, series: [{ label: "step" }, ...series, ...edges], bands, scales: { x: { time: false } }, legend: { show: false },
      axes: [{ ...axis, size: 30, gap: 4 }, { ...axis, size: 46, gap: 4, values: (u, v) => v.map(num) }], cursor: { y: false, drag: { x: false, y: false } }, hooks: { setCursor: [show] },
    }, cols, box);
    const label = series.map((s, k) => { const v = cols[k + 1].filter((x) => x != null); return `${s.label} from ${num(v[0])} to ${num(v[v.length - 1])}`; }).join("; ");
    box.setAttribute("aria-label", `${title(select.value)} over training steps: ${label}`);
  }
  function buildCharts(host) {
    if (host.dataset.built) return;
    const branch = host.dataset.branch, c = own(data.curves, branch);
    host.dataset.built = c ? JSON.stringify(metricsOf(c)) : "1";
    host.replaceChildren();
    if (!c) { host.append(el("p", { class: "muted small" }, "No trial of this branch has a learning curve.")); return; }
    const metrics = metricsOf(c);
    const keys = el("div", { class: "keys" });
    const [drawn] = lines(branch, null);
    keys.append(...drawn.map((l) => key(l.label, l.hue, l.dash, l.width)));
    if (keys.childElementCount > 1 || c.trials[0].label === undefined) host.append(keys);
    for (const m of metrics.slice(0, c.first ? Math.min(c.first.length, 9) : 6)) {
      const select = el("select", { "aria-label": "Metric" }, ...metrics.map((x) => new Option(title(x), x, x === m, x === m)));
      select.title = m;
      const box = el("div", { role: "img" }), at = el("div", { class: "at", "aria-hidden": "true" }), note = el("p", { class: "small muted remark" });
      host.append(el("div", { class: "chart" }, el("div", { class: "chart-head" }, select), box, at, note));
      const chart = { branch, box, select, at, note };
      charts.push(chart);
      select.addEventListener("change", () => { select.title = select.value; drawChart(chart); });
    }
    if (drawn.some((l) => l.high)) host.append(el("p", { class: "keys" }, "Bands: from the lowest to the highest seed."));
    // a chart is as wide as its column, and columns are there once all boxes are
    charts.filter((x) => host.contains(x.box)).forEach(drawChart);
  }
  function key(label, name, dash, width) {
    const line = svg("line", { x1: 0, x2: 26, y1: 6, y2: 6, "stroke-width": width, "stroke-dasharray": dash.join(" ") });
    line.style.stroke = `var(${name})`;
    return el("span", {}, svg("svg", { viewBox: "0 0 26 12" }, line), label);
  }
  function redrawAll() { charts.forEach((c) => c.box.offsetParent && drawChart(c)); }
  let resizing;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => { drawTree(); redrawAll(); }, 120); });

  // all branches in one chart -----------------------------------------------------------------------------------------
  function allCurves() {
    const host = $("all-curves"), names = Object.keys(data.curves || {}).filter((b) => own(data.colours, b) !== undefined);
    if (!host || !names.length) return;
    const metrics = [...new Set(names.flatMap((b) => metricsOf(data.curves[b])))];
    const first = PREFERRED.filter((m) => metrics.includes(m) && !lines(ALL, m)[1]);
    // a name that no branch can have
    data.curves[ALL] = { parent: null, first: first.slice(0, 3), trials: names.flatMap((b) => data.curves[b].trials) };
    host.dataset.branch = ALL;
    buildCharts(host);
  }

  // two branches side by side -----------------------------------------------------------------------------------------
  function sides() {
    const a = $("side-a"), b = $("side-b"), all = $("side-all"), names = Object.keys(data.compare || {});
    if (!a || names.length < 2) { $("sides")?.replaceChildren(); return; }
    const chosen = [a.value, b.value];
    for (const select of [a, b]) select.replaceChildren(...names.map((n) => new Option(data.compare[n].label, n)));
    const champion = data.tree?.find((n) => n.champion)?.id;
    const of = own(data, "of");
    b.value = of ?? (names.includes(champion) ? champion : names[names.length - 1]);
    const parent = data.tree?.find((n) => n.id === b.value)?.parent;
    a.value = names.includes(parent) ? parent : names[0];
    if (chosen.every((n) => names.includes(n))) [a.value, b.value] = chosen;
    const show = () => {
      const left = own(data.compare, a.value), right = own(data.compare, b.value), rows = [];
      for (const [part, head] of [["facts", "Result"], ["recipe", "Recipe"], ["metrics", "What the harness read"]]) {
        const keys = [...new Set([...Object.keys(left[part]), ...Object.keys(right[part])])];
        const kept = keys.filter((k) => all.checked || part === "facts" || own(left[part], k) !== own(right[part], k));
        if (kept.length) rows.push(el("tr", { class: "layer" }, el("th", { colspan: "3", scope: "rowgroup" }, head)));
        const name = (k) => part === "metrics" ? el("th", { scope: "row", title: k }, title(k)) : part === "recipe" ? el("th", { scope: "row", class: "mono" }, k) : el("th", { scope: "row" }, k);
        const row = (k) => el("tr", {}, name(k), el("td", {}, own(left[part], k) ?? "–"), el("td", {}, own(right[part], k) ?? "–"));
        // of the metrics those first that a decision rested on; the rest is folded
        const first = [...new Set([...left.key, ...right.key])].filter((k) => kept.includes(k));
        const rest = part === "metrics" && first.length ? kept.filter((k) => !first.includes(k)) : [];
        rows.push(...(part === "metrics" && first.length ? first : kept).map(row));
        if (!rest.length) continue;
        const folded = rest.map(row), fold = el("button", { type: "button", class: "linklike more", "aria-expanded": "false" }, `${rest.length} more metrics${all.checked ? "" : " that differ"}`);
        for (const r of folded) r.hidden = true;
        fold.addEventListener("click", () => { for (const r of folded) r.hidden = !r.hidden; fold.setAttribute("aria-expanded", String(!folded[0].hidden)); });
        rows.push(el("tr", {}, el("td", { colspan: "3" }, fold)), ...folded);
      }
      const shared = pairs(a.value, b.value);
      const table = el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, ""), el("th", { scope: "col" }, a.value), el("th", { scope: "col" }, b.value))), el("tbody", {}, ...rows));
      const links = (id) => el("a", { class: "ro", href: `#ro-${id}` }, own(data.rollouts, id).outcome || "read");
      if (shared.length) table.tBodies[0].append(el("tr", { class: "layer" }, el("th", { colspan: "3", scope: "rowgroup" }, "Attempts at the same tasks")));
      for (const [task, l, r] of shared) {
        const both = el("tr", { hidden: "" }, el("td", {}, ""), ...[l, r].map((id) => el("td", {}, marked(lastWords(id), null))));
        const fold = el("button", { type: "button", class: "linklike", "aria-expanded": "false" }, task);
        fold.addEventListener("click", () => { both.hidden = !both.hidden; fold.setAttribute("aria-expanded", String(!both.hidden)); });
        table.tBodies[0].append(el("tr", {}, el("th", { scope: "row" }, fold), el("td", {}, links(l)), el("td", {}, links(r))), both);
      }
      $("sides").replaceChildren(table);
    };
    for (const x of [a, b, all]) x.onchange = show;
    show();
  }
  const lastWords = (id) => own(data.rollouts, id).turns.filter((t) => t.role === "assistant").map((t) => t.text).pop() ?? "";
  // rollouts of one task under both branches, as far as the file holds them
  function pairs(left, right) {
    const of = (branch) => new Map(Object.entries(data.rollouts).filter(([, r]) => (r.origin ?? r.branch) === branch).map(([id, r]) => [r.task, id]));
    const l = of(left), r = of(right);
    return [...l].filter(([task]) => r.has(task)).slice(0, 12).map(([task, id]) => [task, id, r.get(task)]);
  }

  // tables: sort, filter, CSV ------------------------------------------------------------------------------------------
  const cellText = (c) => (c?.textContent ?? "").replace(/\s+/g, " ").trim();
  const asNumber = (s) => { const m = s.match(/^[+-]?\d[\d,]*\.?\d*(e[+-]?\d+)?/i); return m ? Number(m[0].replace(/,/g, "")) : null; };
  let bars = 0;
  function tools(table) {
    const heads = table.tHead ? [...table.tHead.rows[0].cells] : [], body = table.tBodies[0];
    if (!heads.length || !body) return;
    for (const row of [...table.tBodies].flatMap((t) => [...t.rows])) [...row.cells].forEach((c, k) => { if (c.colSpan === 1 && row.cells.length === heads.length) c.dataset.label = cellText(heads[k]); });
    table.classList.add("stacks");
    // stacked, the axis of the last row is far from the intervals: each has its own
    const axis = table.querySelector("tr.axis .ticks");
    for (const old of body.querySelectorAll(".ticks.own")) old.remove();
    if (axis) for (const plot of body.querySelectorAll("td.wide > .plot")) { const own = axis.cloneNode(true); own.classList.add("own"); plot.after(own); }
    const plain = !table.matches(".cert") && table.tBodies.length === 1 && !table.querySelector("tbody [rowspan], tbody td[colspan]:not(.axis td)");
    if (plain && body.rows.length > 2) heads.forEach((h) => { if (cellText(h)) { h.classList.add("sortable"); h.tabIndex = 0; } });
    const at = table.closest(".scroll") || table, bar = at.previousElementSibling?.matches(".tools") ? at.previousElementSibling : el("div", { class: "tools", id: `tools-${++bars}` }, el("a", { href: "#", class: "csv", download: "" }, "CSV"));
    if (plain && body.rows.length > 8 && !bar.querySelector("input")) bar.prepend(el("input", { type: "search", placeholder: "filter", "aria-label": "Filter rows" }));
    if (!bar.parentNode) at.before(bar);
    // what a reader chose stands when rows come in
    const sorted = heads.find((h) => h.hasAttribute("aria-sort"));
    if (sorted) sort(sorted);
    if (bar.querySelector("input")?.value) filter(bar.querySelector("input"));
  }
  function sort(h) {
    const table = h.closest("table"), body = table.tBodies[0], k = h.cellIndex, up = h.getAttribute("aria-sort") === "ascending";
    const pinned = [...body.rows].filter((r) => r.classList.contains("axis"));
    const rows = [...body.rows].filter((r) => !pinned.includes(r)).map((r) => [r.cells[k].dataset.sort ?? cellText(r.cells[k]), r]);
    rows.sort(([p], [q]) => { const x = asNumber(p), y = asNumber(q); return (up ? 1 : -1) * (x !== null && y !== null ? x - y : p.localeCompare(q)); });
    body.append(...rows.map((r) => r[1]), ...pinned);
  }
  function resort(h) {
    const up = h.getAttribute("aria-sort") !== "ascending";
    for (const x of h.parentNode.cells) x.removeAttribute("aria-sort");
    h.setAttribute("aria-sort", up ? "ascending" : "descending");
    sort(h);
  }
  const tableOf = (bar) => bar.nextElementSibling?.matches("table") ? bar.nextElementSibling : bar.nextElementSibling?.querySelector("table");
  function filter(input) { for (const r of tableOf(input.parentNode)?.tBodies[0].rows ?? []) r.hidden = !cellText(r).toLowerCase().includes(input.value.toLowerCase()); }
  document.addEventListener("click", (e) => {
    const h = e.target.closest?.("th.sortable"), save = e.target.closest?.("a.csv");
    if (h) resort(h);
    const table = save && tableOf(save.parentNode);
    if (!table) return;
    // made when it is asked for: a page of many tables would hold them all twice
    const quote = (s) => /[",\n]/.test(s) ? `"${s.replace(/"/g, '""')}"` : s;
    const csv = [...table.rows].filter((r) => !r.classList.contains("axis")).map((r) => [...r.cells].map((c) => quote(cellText(c))).join(",")).join("\n");
    const name = table.dataset.csv || table.closest("section, details")?.id || "table";
    save.download = `${name}-${[...document.querySelectorAll("a.csv")].indexOf(save) + 1}.csv`;
    save.href = `data:text/csv;charset=utf-8,${encodeURIComponent(csv)}`;
  });
  document.addEventListener("keydown", (e) => { if ((e.key === "Enter" || e.key === " ") && e.target.matches?.("th.sortable")) { e.preventDefault(); resort(e.target); } });
  document.addEventListener("input", (e) => { if (e.target.matches?.(".tools input")) filter(e.target); }, true);

  // rollouts --------------------------------------------------------------------------------------------------------
  const dialog = $("rollout");
  let shown = null, ring = [];
  // quotes were cleaned and cut: of one that is not there as it stands, the longest piece that cleaning left alone
  function spanIn(text, quote) {
    if (!quote || text.includes(quote)) return quote;
    const piece = quote.split(/\\x[0-9a-f]{2}|[…\ufffd?]/).reduce((a, b) => b.length > a.length ? b : a);
    return piece.length >= 8 && text.includes(piece) ? piece : null;
  }
  function marked(text, quote) {
    const pre = el("pre");
    quote = spanIn(text, quote);
    const at = quote ? text.indexOf(quote) : -1;
    if (at < 0) pre.textContent = text;
    else pre.append(text.slice(0, at), el("mark", { class: "hit" }, quote), text.slice(at + quote.length));
    return pre;
  }
  function openRollout(id, quote) {
    const all = data.rollouts ?? {}, ids = own(all, id) ? [id] : Object.keys(all).filter((x) => x.startsWith(id));
    if (ids.length !== 1) { cannotOpen(id, ids.length); return; }
    const r = all[shown = ids[0]];
    $("ro-title").textContent = r.task;
    $("ro-sub").textContent = [r.branch, r.outcome, r.reward === null ? "not graded" : `reward ${r.reward}`].filter(Boolean).join(" · ");
    const body = $("ro-body");
    body.replaceChildren();
    const part = (title, ...kids) => body.append(el("h4", {}, title), ...kids);
    const solo = r.turns.filter((t) => t.role === "assistant").length === 1;
    const has = (t) => spanIn(t.text, quote) || t.calls.some((c) => spanIn(c.text, quote));
    const spoken = quote && r.turns.some((t) => t.role === "assistant" && has(t));
    r.turns.forEach((t, i) => {
      if (!t.role) { body.append(el("p", { class: "muted small" }, `… ${t.text}`)); return; }
      const mark = t.role === "assistant" || !spoken ? quote : null;
      const name = t.role === "assistant" ? (!solo ? "Policy" : r.tests.length ? "Program" : "Answer") : t.role === "user" && (i === 0 || solo) ? "Prompt" : t.role[0].toUpperCase() + t.role.slice(1);
      part(r.turns.length > 4 && t.n ? `${name}, turn ${t.n}` : name, ...(t.text || !t.calls.length ? [marked(t.text, mark)] : []));
      for (const c of t.calls) {
        const state = c.ok === null ? [] : [el("span", { class: c.ok ? "ok" : "bad" }, c.ok ? "succeeded" : "failed")];
        body.append(el("p", { class: "call" }, "Tool call", ...state), marked(c.text, mark));
      }
    });
    if (r.tests.length) part("Tests", testTable(r));
    if (Object.keys(r.components).length) part("Reward components", components(r));
    if (r.detail) part("Detail", marked(r.detail, null));
    part("Facts", el("dl", { class: "facts" }, ...r.facts.map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v)))));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    if (!solo) body.querySelector("mark")?.scrollIntoView({ block: "center" });
    body.focus({ preventScroll: true });
  }
  function cannotOpen(id, n) {
    $("ro-title").textContent = `Rollout ${id}`;
    $("ro-sub").textContent = "";
    const why = n ? `${n} rollouts on this page begin so: give more digits.` : "This page holds no such rollout; evotrainer show finds any that was stored.";
    $("ro-body").replaceChildren(el("p", {}, why));
    if (!dialog.open) dialog.showModal();
  }
  function testTable(r) {
    const cols = ["kind", "input", "expected", "got", "status"].filter((c) => r.tests.some((t) => t[c] || (c === "status" && t.error)));
    const rows = r.tests.map((t) => el("tr", {}, ...cols.map((c) => {
      if (c === "status") return el("td", { class: /^(ok|pass|passed)$/.test(t.status ?? "") ? "good" : "bad" }, [t.status, t.error].filter(Boolean).join(": "));
      if (c === "kind") return el("td", {}, t.kind ?? "");
      if (t[c] === null) return el("td", { class: "muted" }, "–");
      return el("td", {}, t[c] === "" ? el("span", { class: "muted" }, "(empty)") : marked(t[c], null));
    })));
    const table = el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...cols.map((c) => el("th", {}, c)))), el("tbody", {}, ...rows)));
    if (r.tests_cut) table.append(el("p", { class: "muted small" }, `${r.tests_cut} more tests not shown`));
    return table;
  }
  function components(r) {
    const w = own(data.weights, r.origin ?? r.branch);
    return el("div", { class: "parts" }, ...Object.entries(r.components).map(([k, v]) =>
      el("div", {}, el("span", { class: "muted small" }, k), el("b", {}, v === null ? "n/a" : num(v)), el("span", { class: "small muted" }, !w ? "" : own(w, k) ? `weight ${num(own(w, k))}` : "not paid"))));
  }
  function leave() { if (location.hash.startsWith("#ro-")) history.replaceState(null, "", location.pathname + location.search); shown = null; }
  dialog.addEventListener("close", leave);
  dialog.addEventListener("click", (e) => { if (e.target === dialog) dialog.close(); });
  $("ro-close").addEventListener("click", () => dialog.close());
  const turn = (by) => { const i = ring.indexOf(shown); if (ring.length) openRollout(ring[(i + by + ring.length) % ring.length]); };
  $("ro-prev").addEventListener("click", () => turn(-1));
  $("ro-next").addEventListener("click", () => turn(1));
  dialog.addEventListener("keydown", (e) => { if (e.key === "ArrowLeft") turn(-1); else if (e.key === "ArrowRight") turn(1); });
  const ringOf = (a) => [...new Set([...(a.closest("table, .quotes") || document).querySelectorAll("a.ro")].map((x) => x.hash.slice(4)))];
  document.addEventListener("click", (e) => {
    const a = e.target.closest?.("a.ro");
    if (!a || e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    ring = ringOf(a);
    history.replaceState(null, "", a.hash);
    openRollout(a.hash.slice(4), a.dataset.quote);
  });

  // places ----------------------------------------------------------------------------------------------------------
  function follow() {
    let id = location.hash.slice(1);
    try { id = decodeURIComponent(id); } catch { /* not an encoded name: take it as it stands */ }
    if (id.startsWith("ro-")) { ring = Object.keys(data.rollouts); openRollout(id.slice(3)); return; }
    const target = document.getElementById(id);
    if (target?.matches("details")) { target.open = true; target.scrollIntoView(); }
  }
  addEventListener("hashchange", follow);
  // a link to the place that is already in the address bar changes no hash
  document.addEventListener("click", (e) => { const a = e.target.closest?.("a[href^='#']"); if (a && !a.matches(".ro") && (a.hash || a.getAttribute("href")) === location.hash) follow(); });
  document.addEventListener("toggle", (e) => { if (e.target.matches?.("details.branch")) { if (e.target.open) e.target.querySelectorAll(".charts").forEach(buildCharts); redrawAll(); } }, true);
  document.addEventListener("click", (e) => { if (e.target.closest?.("#open-all")) for (const d of document.querySelectorAll("details.branch")) d.open = true; });
  addEventListener("beforeprint", () => { for (const d of document.querySelectorAll("details")) d.open = true; document.querySelectorAll("details.branch .charts").forEach(buildCharts); });
  // what scripts add to the page's own text; again after parts of it were replaced
  function dress() {
    for (const d of document.querySelectorAll("details.branch[open] .charts, #now .charts, #branch-page .charts")) buildCharts(d);
    [...document.querySelectorAll("main table")].filter((t) => !t.closest("#sides") && !t.matches(".budget, .gates")).forEach(tools);
  }
  // new data: what is drawn from it is drawn again
  function renew(changed) {
    Object.assign(data, changed);
    for (let i = charts.length; i--;) if (!charts[i].box.isConnected) { charts[i].plot?.destroy(); charts.splice(i, 1); }
    if ("tree" in changed) drawTree();
    if ("curves" in changed) {
      for (const host of document.querySelectorAll(".charts[data-built]")) {
        const c = own(data.curves, host.dataset.branch), known = c ? JSON.stringify(metricsOf(c)) : "1";
        if (host.id === "all-curves" || known === host.dataset.built) continue;
        delete host.dataset.built;
        buildCharts(host);
      }
      if ($("all-curves")) { delete $("all-curves").dataset.built; allCurves(); }
      redrawAll();
    }
    if ("compare" in changed) sides();
  }
  globalThis.page = { dress, renew, follow };
  drawTree();
  allCurves();
  sides();
  dress();
  follow();
  document.documentElement.dataset.ready = "1";
})();
