"use strict";
// The charts of the page, and its controls. The state of the controls is the part of the address after #, so that a
// reload keeps it and a link can carry it. Tables and sentences are in the page already.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const DASHES = ["", "7 4", "2 3", "10 3 2 3", "14 4", "5 2 1 2 1 2", "1 4", "9 2 4 2"];
  const COLOURS = 8;
  const defaults = { c: "0", t: "", x: data.axis, y: "i", log: "", seeds: "", off: "", theme: "" };
  const state = { ...defaults };
  const $ = (id) => document.getElementById(id);

  const read = () => {
    Object.assign(state, defaults);
    for (const [name, value] of new URLSearchParams(location.hash.slice(1)))
      if (name in defaults) state[name] = value;
    if (!data.comparisons[state.c]) state.c = "0";
  };
  const write = () => {
    const kept = Object.entries(state).filter(([name, value]) => value !== defaults[name]);
    const hash = new URLSearchParams(kept).toString();
    history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search);
  };
  const change = (changes) => { Object.assign(state, changes); write(); show(); };

  const make = (name, attributes = {}, parent = null, text = null) => {
    const drawn = /^(svg|g|path|line|text|circle|rect)$/.test(name);
    const node = drawn ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  };
  const colour = (look) => `var(--m${look % COLOURS})`;
  const dash = (look) => DASHES[(look + Math.floor(look / COLOURS)) % DASHES.length];
  const short = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(1).replace("-", "−");
    return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 5 : 3 }).replace("-", "−");
  };
  const tickText = (value) => {
    const size = Math.abs(value);
    if (size >= 1e6) return short(value / 1e6) + "M";
    if (size >= 1e4) return short(value / 1e3) + "k";
    return short(value);
  };

  const steps = (low, high, count) => {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw);
    const found = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high * (1 + 1e-12) + 1e-12 * step; n++) found.push(n * step || 0);
    return found;
  };
  const powers = (low, high) => {
    const found = [];
    for (let p = Math.floor(Math.log10(low)); 10 ** p <= high; p++)
      for (const f of high / low > 1e3 ? [1] : [1, 2, 5]) if (f * 10 ** p >= low && f * 10 ** p <= high) found.push(f * 10 ** p);
    return found;
  };
  const scale = (low, high, from, to, log) => {
    const f = log ? Math.log10 : (v) => v;
    const a = f(low), b = f(high) === f(low) ? f(low) + 1 : f(high);
    return (v) => from + ((f(v) - a) / (b - a)) * (to - from);
  };

  const path = (xs, ys) => {
    let d = "", pen = false;
    xs.forEach((x, n) => {
      const y = ys[n];
      if (y === null || !Number.isFinite(y) || !Number.isFinite(x)) { pen = false; return; }
      d += `${pen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = true;
    });
    return d;
  };
  const area = (xs, low, high) => {
    const there = xs.map((_, n) => n).filter((n) => low[n] !== null && high[n] !== null && Number.isFinite(xs[n]));
    if (there.length < 2) return "";
    const up = there.map((n) => `${xs[n].toFixed(1)} ${high[n].toFixed(1)}`);
    const down = there.reverse().map((n) => `${xs[n].toFixed(1)} ${low[n].toFixed(1)}`);
    return `M${up.join("L")}L${down.join("L")}Z`;
  };

  // A chart of curves. `spec`: title, sub, xlabel, curves [{name, look, x, y, low, high, seeds, n}], levels, log, height.
  const lineChart = (host, spec) => {
    const figure = make("figure", { class: "chart" }, host);
    const caption = make("figcaption", {}, figure, spec.title);
    if (spec.sub) make("small", {}, caption, spec.sub);
    const width = Math.max(240, figure.clientWidth), height = spec.height;
    const curves = spec.curves.map((curve) => {
      const keep = curve.x.map((x, n) => n).filter((n) => !spec.log || curve.x[n] > 0);
      const pick = (values) => values && keep.map((n) => values[n]);
      return { ...curve, x: pick(curve.x), y: pick(curve.y), low: pick(curve.low), high: pick(curve.high),
               seeds: (curve.seeds || []).map(pick), n: Array.isArray(curve.n) ? pick(curve.n) : curve.n };
    }).filter((curve) => curve.x.length);
    const names = curves.map((curve) => curve.name).join(", ");
    const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0",
      "aria-label": `${spec.title}: ${names || "no curve is switched on"}. Arrow keys read values.` }, figure);
    if (!curves.length) {
      make("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, svg, "no curve is switched on");
      return;
    }
    const values = [];
    for (const curve of curves) for (const list of [curve.y, curve.low, curve.high, ...curve.seeds])
      for (const v of list || []) if (v !== null) values.push(v);
    for (const level of spec.levels || []) values.push(level.y);
    let low = Math.min(...values), high = Math.max(...values);
    if (spec.range) [low, high] = [Math.min(low, spec.range[0]), Math.max(high, spec.range[1])];
    if (low === high) { low -= Math.abs(low) * 0.1 || 1; high += Math.abs(high) * 0.1 || 1; }
    const pad = spec.range ? 0 : (high - low) * 0.04;
    const ticks = steps(low - pad, high + pad, Math.max(3, Math.round(height / 48)));
    const left = 14 + 7 * Math.max(...ticks.map((tick) => tickText(tick).length)), right = width - 10;
    const top = 10, bottom = height - 38;
    const xs = curves.flatMap((curve) => curve.x);
    const start = spec.log ? Math.min(...xs) : Math.min(0, ...xs), end = Math.max(...xs);
    const x = scale(start, end, left, right, spec.log), y = scale(low - pad, high + pad, bottom, top, false);
    for (const tick of ticks) {
      make("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }, svg);
      make("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, svg, tickText(tick));
    }
    const room = Math.max(2, Math.round((right - left) / 95));
    let across = spec.log && end > start ? powers(start, end) : end > start ? steps(start, end, room) : [start];
    while (across.length > room * 1.6) across = across.filter((_, n) => n % 2 === 0);
    for (const tick of across)
      make("text", { x: Math.min(x(tick), right - 8), y: bottom + 16, "text-anchor": "middle", class: "tick-x" }, svg, tickText(tick));
    make("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }, svg);
    make("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle", class: "x-label" }, svg, spec.xlabel);
    (spec.levels || []).forEach((level, n) => {  // their names at alternate ends, or they lie on each other
      make("line", { class: "reference", x1: left, x2: right, y1: y(level.y), y2: y(level.y) }, svg);
      make("text", { class: "level", x: n % 2 ? left + 4 : right, y: y(level.y) - 4, "text-anchor": n % 2 ? "start" : "end" }, svg, level.name);
    });
    for (const curve of curves) {
      const at = curve.x.map(x), to = (list) => list.map((v) => (v === null ? null : y(v)));
      if (curve.low) make("path", { class: "band", fill: colour(curve.look), d: area(at, to(curve.low), to(curve.high)) }, svg);
      for (const seed of curve.seeds) make("path", { class: "seed", stroke: colour(curve.look), d: path(at, to(seed)) }, svg);
      make("path", { class: "line", stroke: colour(curve.look), "stroke-dasharray": dash(curve.look), d: path(at, to(curve.y)),
        "data-method": curve.name }, svg);
      if (curve.x.length <= 25) curve.x.forEach((_, n) => curve.y[n] !== null &&
        make("circle", { cx: at[n], cy: y(curve.y[n]), r: 2.6, fill: colour(curve.look) }, svg));
    }
    reader(figure, svg, spec, curves, { x, y, left, right, top, bottom });
  };

  // Reading values off a chart, by pointer or by arrow keys.
  const reader = (figure, svg, spec, curves, at) => {
    const stops = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
    let place = -1, cursor = null, tip = null;
    const clear = () => { if (cursor) cursor.remove(); if (tip) tip.remove(); cursor = tip = null; };
    const put = (n, aloud) => {
      clear();
      place = Math.max(0, Math.min(stops.length - 1, n));
      const here = stops[place], px = at.x(here);
      cursor = make("line", { class: "cursor", x1: px, x2: px, y1: at.top, y2: at.bottom }, svg);
      tip = make("div", { class: "tip" }, figure);
      make("b", {}, tip, `${short(here)} ${spec.unit || ""}`);
      const lines = [];
      for (const curve of curves) {
        let n = curve.x.length - 1;
        while (n > 0 && curve.x[n] > here) n--;
        if (curve.x[n] > here || curve.y[n] === null || (n === curve.x.length - 1 && here > curve.x[n] * 1.02)) continue;
        const ends = curve.low && curve.low[n] !== null ? ` [${short(curve.low[n])}, ${short(curve.high[n])}]` : "";
        const seeds = curve.n === undefined ? "" : Array.isArray(curve.n) ? curve.n[n] : curve.n;
        const line = make("div", {}, tip);
        make("i", { style: `background: ${colour(curve.look)}` }, line);
        const text = `${curve.name} ${short(curve.y[n])}${ends}${seeds ? ` · ${seeds} seed${seeds > 1 ? "s" : ""}` : ""}`;
        line.append(text);
        lines.push(text);
      }
      const room = figure.clientWidth, wide = tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(room - wide, px < room / 2 ? px + 12 : px - wide - 12))}px`;
      tip.style.top = `${svg.getBoundingClientRect().top - figure.getBoundingClientRect().top + at.top}px`;
      if (aloud) $("said").textContent = `${short(here)} ${spec.unit || ""}: ${lines.join("; ")}`;
    };
    svg.addEventListener("pointermove", (event) => {
      const px = event.clientX - svg.getBoundingClientRect().left;
      let best = 0;
      stops.forEach((stop, n) => { if (Math.abs(at.x(stop) - px) < Math.abs(at.x(stops[best]) - px)) best = n; });
      put(best, false);
    });
    svg.addEventListener("pointerleave", clear);
    svg.addEventListener("blur", clear);
    svg.addEventListener("keydown", (event) => {
      const jump = Math.max(1, Math.round(stops.length / 10));
      const to = { ArrowRight: place + 1, ArrowLeft: place < 0 ? stops.length - 1 : place - 1, PageUp: place + jump,
                   PageDown: place - jump, Home: 0, End: stops.length - 1 }[event.key];
      if (event.key === "Escape") clear();
      if (to === undefined) return;
      event.preventDefault();
      put(to, true);
    });
  };

  // One number per method with its interval.
  const dotChart = (host, comparison, statistic, hidden) => {
    const figure = make("figure", { class: "chart" }, host);
    make("figcaption", {}, figure, statistic.name + (statistic.name === "optimality gap" ? " (less is better)" : ""));
    const rows = statistic.rows.filter((row) => !hidden.has(row[0]));
    const width = Math.max(200, figure.clientWidth), height = 32 * rows.length + 30;
    const said = rows.map((row) => `${comparison.methods[row[0]]} ${short(row[1])}`).join(", ");
    const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `${statistic.name}: ${said}` }, figure);
    if (!rows.length) return;
    const all = rows.flatMap((row) => row.slice(1)).filter((v) => v !== null);
    const x = scale(Math.min(0, ...all), Math.max(1, ...all), 6, width - 12, false), bottom = height - 22;
    for (const tick of steps(Math.min(0, ...all), Math.max(1, ...all), 4)) {
      make("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 0, y2: bottom }, svg);
      make("text", { x: x(tick), y: height - 6, "text-anchor": "middle" }, svg, short(tick));
    }
    rows.forEach(([method, middle, low, high], n) => {
      const y = 24 + 32 * n, look = comparison.looks[method];
      if (low !== null) make("line", { x1: x(low), x2: x(high), y1: y, y2: y, stroke: colour(look), "stroke-width": 6, opacity: 0.4 }, svg);
      make("line", { x1: x(middle), x2: x(middle), y1: y - 6, y2: y + 6, stroke: colour(look), "stroke-width": 3 }, svg);
      make("text", { x: 6, y: y - 10 }, svg, comparison.methods[method]);
    });
  };

  const hiddenOf = () => new Set(state.off ? state.off.split(",").map(Number) : []);
  const ready = (comparison, curve, hidden) => hidden.has(curve.m) ? [] : [{
    name: comparison.methods[curve.m], look: comparison.looks[curve.m], n: curve.n,
    x: state.x === "frames" ? curve.x : curve.d || curve.x.map((x) => x / (curve.r || 1)),
    y: curve[state.y] || curve.i, low: curve[state.y + "l"], high: curve[state.y + "h"],
    seeds: state.seeds ? curve.s : [],
  }];
  const unitOf = (task) => task.axis !== "env frames" ? task.axis : state.x === "frames" ? "env frames" : "decisions";

  const draw = (section, comparison) => {
    const hidden = hiddenOf();
    const chosen = state.t === "all" || !comparison.tasks[state.t] ? comparison.tasks : [comparison.tasks[state.t]];
    const put = (kind, fill) => {
      const host = section.querySelector(`[data-chart="${kind}"]`);
      if (!host) return;
      host.style.minHeight = `${host.offsetHeight}px`;  // or the page jumps while it is drawn again
      host.replaceChildren();
      fill(host);
      host.style.minHeight = "";
    };
    put("curves", (host) => {
      host.classList.toggle("many", chosen.length > 1);
      for (const task of chosen) lineChart(host, {
        title: task.name, sub: `${task.label}, ${task.better}`, xlabel: unitOf(task) + (state.log ? ", log scale" : ""), unit: unitOf(task),
        curves: task.curves.flatMap((curve) => ready(comparison, curve, hidden)), log: !!state.log,
        levels: Object.entries(task.ref).map(([name, y]) => ({ name, y })),
        height: chosen.length > 1 ? 230 : Math.max(280, Math.min(440, host.clientWidth * 0.42)),
      });
    });
    for (const kind of ["regret", "explore"]) put(kind, (host) => {
      for (const task of chosen) for (const panel of task[kind]) lineChart(host, {
        title: panel.title, sub: chosen.length > 1 ? task.name : "", xlabel: unitOf(task) + (state.log ? ", log scale" : ""), unit: unitOf(task), height: 210,
        curves: panel.curves.flatMap((curve) => ready(comparison, curve, hidden)), log: !!state.log,
        levels: panel.ref === null ? [] : [{ name: short(panel.ref), y: panel.ref }],
      });
    });
    if (comparison.profile) put("profile", (host) => lineChart(host, {
      title: "Performance profile", sub: "", xlabel: "normalised score", unit: "normalised score", height: 280, range: [0, 1],
      curves: comparison.profile.filter((curve) => !hidden.has(curve.m)).map((curve) => ({
        name: comparison.methods[curve.m], look: comparison.looks[curve.m], x: curve.x, y: curve.i, low: curve.il, high: curve.ih })),
    }));
    if (comparison.aggregate) put("aggregate", (host) => {
      for (const statistic of comparison.aggregate) dotChart(host, comparison, statistic, hidden);
    });
  };

  const legend = (section, comparison) => {
    const host = section.querySelector(".methods"), hidden = hiddenOf();
    const focused = host.contains(document.activeElement) ? [...host.children].indexOf(document.activeElement) : -1;
    host.replaceChildren();
    comparison.methods.forEach((name, m) => {
      const button = make("button", { type: "button", "aria-pressed": String(!hidden.has(m)), "data-method": name }, host);
      const svg = make("svg", { viewBox: "0 0 30 10", "aria-hidden": "true" }, button);
      make("line", { x1: 0, x2: 30, y1: 5, y2: 5, stroke: colour(comparison.looks[m]), "stroke-width": 2.5,
        "stroke-dasharray": dash(comparison.looks[m]) }, svg);
      button.append(name);
      button.addEventListener("click", () => {
        hidden.has(m) ? hidden.delete(m) : hidden.add(m);
        change({ off: [...hidden].sort((a, b) => a - b).join(",") });
      });
    });
    if (focused >= 0) host.children[focused].focus();
  };

  const theme = () => {
    const names = { "": "system", light: "light", dark: "dark" };
    if (state.theme) document.documentElement.dataset.theme = state.theme;
    else delete document.documentElement.dataset.theme;
    $("theme").textContent = `Colours: ${names[state.theme] || "system"}`;
    $("theme").setAttribute("aria-label", `Colours: ${names[state.theme] || "system"}; press to change`);
  };

  const show = () => {
    theme();
    const comparison = data.comparisons[state.c];
    if (!comparison) return;
    $("comparison").value = state.c;
    for (const input of document.querySelectorAll('input[name="axis"]')) input.checked = input.value === state.x;
    for (const input of document.querySelectorAll('input[name="line"]')) input.checked = input.value === state.y;
    $("log").checked = !!state.log;
    $("seeds").checked = !!state.seeds;
    for (const section of document.querySelectorAll(".comparison")) {
      section.hidden = section.dataset.index !== state.c;
      if (section.hidden) continue;
      const select = section.querySelector(".task");
      if (!comparison.tasks[state.t] && state.t !== "all") state.t = comparison.tasks.length > 1 ? "all" : "0";
      select.value = state.t;
      legend(section, comparison);
      draw(section, comparison);
    }
  };

  const listen = () => {
    $("comparison").addEventListener("change", (event) => change({ c: event.target.value, t: "", off: "" }));
    for (const input of document.querySelectorAll('input[name="axis"]')) input.addEventListener("change", () => change({ x: input.value }));
    for (const input of document.querySelectorAll('input[name="line"]')) input.addEventListener("change", () => change({ y: input.value }));
    $("log").addEventListener("change", (event) => change({ log: event.target.checked ? "1" : "" }));
    $("seeds").addEventListener("change", (event) => change({ seeds: event.target.checked ? "1" : "" }));
    for (const select of document.querySelectorAll(".task")) select.addEventListener("change", () => change({ t: select.value }));
    for (const link of document.querySelectorAll("[data-open]")) link.addEventListener("click", (event) => {
      event.preventDefault();
      change({ c: link.dataset.open, t: "", off: "" });
      $("figures").scrollIntoView();
      $("figures").focus({ preventScroll: true });
    });
    $("theme").addEventListener("click", () => change({ theme: { "": "dark", dark: "light", light: "" }[state.theme] ?? "" }));
    addEventListener("hashchange", () => { read(); show(); });
    let wide = document.body.clientWidth, later = 0;
    addEventListener("resize", () => {
      if (document.body.clientWidth === wide) return;
      wide = document.body.clientWidth;
      clearTimeout(later);
      later = setTimeout(show, 80);
    });
    addEventListener("beforeprint", () => { for (const fold of document.querySelectorAll("details")) fold.open = fold.closest("[hidden]") === null; });
  };

  // A page that is being rewritten reads itself again, but not under the reader's hands.
  const live = () => {
    const seconds = Number(document.documentElement.dataset.reload);
    if (!seconds) return;
    const pause = $("pause");
    let touched = 0, paused = false;
    pause.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.setAttribute("aria-pressed", String(paused));
      pause.textContent = paused ? "Go on reloading" : "Pause reloading";
    });
    for (const kind of ["pointermove", "pointerdown", "keydown", "wheel", "touchmove"])
      addEventListener(kind, () => { touched = Date.now(); }, { passive: true });
    setInterval(() => {
      if (!paused && !document.hidden && Date.now() - touched > 2000 && document.activeElement?.tagName !== "SELECT") location.reload();
    }, 1000 * seconds);
  };

  read();
  listen();
  show();
  live();
})();
