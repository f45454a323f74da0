"use strict";
// Charts as inline SVG in the colours of the page. Used by `sombrl report` (page.js) and by the page of `sombrl demo`.
const charts = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const DASHES = ["", "7 4", "2 3", "10 3 2 3", "14 4", "5 2 1 2 1 2", "1 4", "9 2 4 2"];
  const COLOURS = 8;

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
  // A place on an axis.
  const short = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(1).replace("-", "−");
    return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 5 : 3 }).replace("-", "−");
  };
  // A measured number, written as in the tables; as many decimals as a number of the size of `like` has.
  const number = (value, like = value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(like), digits = size > 0 && size < 0.1 ? Math.min(9, 1 - Math.floor(Math.log10(size)))
      : size >= 100 ? 0 : size >= 10 ? 1 : 2;
    return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
  };
  const interval = (value, low, high) => {
    if (low === null || low === undefined) return number(value);
    const like = Math.max(...[value, low, high].map(Math.abs));
    return `${number(value, like)} [${number(low, like)}, ${number(high, like)}]`;
  };
  // The ticks of an axis in one unit: 8k and 12k, or 800 and 1,200. On a log axis, where sizes differ, each has its own.
  const tickTexts = (ticks, log = false) => {
    const unit = (size) => size >= 1e6 ? [1e6, "M"] : size >= (log ? 1e3 : 1e4) ? [1e3, "k"] : [1, ""];
    const largest = Math.max(...ticks.map(Math.abs));
    return ticks.map((tick) => {
      const [size, name] = unit(log ? tick : largest);
      return tick === 0 ? "0" : short(tick / size) + name;
    });
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

  // A chart of curves. `spec`: title, sub, xlabel, unit, height, curves [{name, look, x, y, low, high, seeds, n}], levels
  // [{name, y}], range of y; log: a log axis; counts: x are whole numbers from the first one on.
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
    const labels = tickTexts(ticks);
    const left = 14 + 7 * Math.max(...labels.map((label) => label.length)), right = width - 10;
    const top = 10, bottom = height - 38;
    const xs = curves.flatMap((curve) => curve.x);
    const start = spec.log || spec.counts ? Math.min(...xs) : Math.min(0, ...xs), end = Math.max(...xs);
    const x = scale(start, end, left, right, spec.log), y = scale(low - pad, high + pad, bottom, top, false);
    ticks.forEach((tick, n) => {
      make("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }, svg);
      make("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, svg, labels[n]);
    });
    const room = Math.max(2, Math.round((right - left) / (spec.counts ? 45 : 95)));
    const count = spec.counts ? Math.min(room, end - start) : room;
    let across = spec.log && end > start ? powers(start, end) : end > start ? steps(start, end, count) : [start];
    while (across.length > room * 1.6) across = across.filter((_, n) => n % 2 === 0);
    tickTexts(across, spec.log).forEach((label, n) =>
      make("text", { x: Math.min(x(across[n]), right - 8), y: bottom + 16, "text-anchor": "middle", class: "tick-x" }, svg, label));
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
        const seeds = curve.n === undefined ? "" : Array.isArray(curve.n) ? curve.n[n] : curve.n;
        const line = make("div", {}, tip);
        make("i", { style: `background: ${colour(curve.look)}` }, line);
        const text = `${curve.name} ${interval(curve.y[n], curve.low?.[n], curve.high?.[n])}${seeds ? ` · ${seeds} seed${seeds > 1 ? "s" : ""}` : ""}`;
        line.append(text);
        lines.push(text);
      }
      const room = figure.clientWidth, wide = tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(room - wide, px < room / 2 ? px + 12 : px - wide - 12))}px`;
      tip.style.top = `${svg.getBoundingClientRect().top - figure.getBoundingClientRect().top + at.top}px`;
      if (aloud) document.getElementById("said").textContent = `${short(here)} ${spec.unit || ""}: ${lines.join("; ")}`;
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
    const said = rows.map((row) => `${comparison.methods[row[0]]} ${interval(...row.slice(1))}`).join(", ");
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

  return { make, colour, dash, short, lineChart, dotChart };
})();
