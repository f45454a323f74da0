// The controls of the page and the charts they choose. The state of the controls is the part of the address after #, so
// that a reload keeps it and a link can carry it. Tables and sentences are in the page already.
(() => {
  const { make, colour, dash, short, lineChart, dotChart } = charts;
  const data = JSON.parse(document.getElementById("data").textContent);
  const defaults = { c: String(data.first), s: document.querySelector("#scale option")?.value ?? "", v: "", t: "", x: data.axis, y: "i", log: "", seeds: "", off: "", theme: "" };
  const state = { ...defaults };
  const $ = (id) => document.getElementById(id);
  const choices = [["axis", "x"], ["line", "y"]].flatMap(([name, key]) =>
    [...document.querySelectorAll(`input[name="${name}"]`)].map((input) => [input, key]));

  const read = () => {
    Object.assign(state, defaults);
    for (const [name, value] of new URLSearchParams(location.hash.slice(1)))
      if (name in defaults) state[name] = value;
    if (!data.comparisons[state.c]) state.c = defaults.c;
  };
  const write = () => {
    const kept = Object.entries(state).filter(([name, value]) => value !== defaults[name]);
    const hash = new URLSearchParams(kept).toString();
    history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search);
  };
  const change = (changes) => { Object.assign(state, changes); write(); show(); };

  const hiddenOf = () => new Set(state.off ? state.off.split(",").map(Number) : []);
  const ready = (comparison, curve, hidden) => hidden.has(curve.m) ? [] : [{
    name: comparison.methods[curve.m], look: comparison.looks[curve.m], n: curve.n,
    x: state.x === "frames" ? curve.x : curve.d || curve.x.map((x) => x / (curve.r || 1)),
    y: curve[state.y] || curve.i, low: curve[state.y + "l"], high: curve[state.y + "h"],
    seeds: state.seeds ? curve.s : [],
  }];
  // What charts over time have in common.
  const overTime = (comparison, task, curves, hidden) => {
    const unit = task.axis !== "env frames" ? task.axis : state.x === "frames" ? "env frames" : "decisions";
    return { unit, xlabel: unit + (state.log ? ", log scale" : ""), log: !!state.log,
             curves: curves.flatMap((curve) => ready(comparison, curve, hidden)) };
  };

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
        ...overTime(comparison, task, task.curves, hidden), title: task.name, sub: `${task.label}, ${task.better}`,
        levels: Object.entries(task.ref).map(([name, y]) => ({ name, y })),
        height: chosen.length > 1 ? 230 : Math.max(280, Math.min(440, host.clientWidth * 0.42)),
      });
    });
    for (const kind of ["regret", "explore"]) put(kind, (host) => {
      for (const task of chosen) for (const chart of task[kind]) lineChart(host, {
        ...overTime(comparison, task, chart.curves, hidden), title: chart.title, sub: chosen.length > 1 ? task.name : "",
        levels: chart.ref === null ? [] : [{ name: short(chart.ref), y: chart.ref }], height: 210,
      });
    });
    if (comparison.profile) put("profile", (host) => lineChart(host, {
      title: "Performance profile", xlabel: "normalised score", unit: "normalised score", height: 280, range: [0, 1],
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
    if (state.theme) document.documentElement.dataset.theme = state.theme;
    else delete document.documentElement.dataset.theme;
    $("theme").textContent = `Colours: ${state.theme || "system"}`;
    $("theme").setAttribute("aria-label", `Colours: ${state.theme || "system"}; press to change`);
  };

  // The verdicts of one scale: sentences of a quick run and of a thorough one are not counted together.
  const verdicts = () => {
    $("scale").value = state.s;
    if ($("scale").value !== state.s) $("scale").value = state.s = defaults.s;
    for (const part of document.querySelectorAll("[data-scale]")) part.hidden = part.dataset.scale !== state.s;
    $("verdicts").open = !!state.v;
  };

  const show = () => {
    theme();
    verdicts();
    const comparison = data.comparisons[state.c];
    if (!comparison) return;
    $("comparison").value = state.c;
    for (const [input, key] of choices) input.checked = input.value === state[key];
    for (const name of ["log", "seeds"]) $(name).checked = !!state[name];
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
    for (const [input, key] of choices) input.addEventListener("change", () => change({ [key]: input.value }));
    for (const name of ["log", "seeds"]) $(name).addEventListener("change", (event) => change({ [name]: event.target.checked ? "1" : "" }));
    for (const select of document.querySelectorAll(".task")) select.addEventListener("change", () => change({ t: select.value }));
    for (const link of document.querySelectorAll("[data-open]")) link.addEventListener("click", (event) => {
      event.preventDefault();
      change({ c: link.dataset.open, t: "", off: "" });
      $("figures").scrollIntoView();
      $("figures").focus({ preventScroll: true });
    });
    $("scale").addEventListener("change", (event) => change({ s: event.target.value }));
    $("verdicts").addEventListener("toggle", (event) => { state.v = event.target.open ? "1" : ""; write(); });
    $("theme").addEventListener("click", () => change({ theme: { "": "dark", dark: "light", light: "" }[state.theme] ?? "" }));
    addEventListener("hashchange", () => { read(); show(); });
    let wide = document.body.clientWidth, later = 0;
    addEventListener("resize", () => {
      if (document.body.clientWidth === wide) return;
      wide = document.body.clientWidth;
      clearTimeout(later);
      later = setTimeout(show, 80);
    });
    addEventListener("beforeprint", () => { for (const fold of document.querySelectorAll(".comparison:not([hidden]) details")) fold.open = true; });
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
