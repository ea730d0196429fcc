"use strict";
// Draws the pictures of the page anew for the part of the run that is shown. The numbers are in the page; nothing is loaded.
const LEFT = 66, RIGHT = 12, TOP = 16, BOTTOM = 24, HEIGHT = 260, WANTED = 900;
const NS = "http://www.w3.org/2000/svg";
const MARKED = new Set(["death", "kill", "alarm"]);
const ROUND = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const WORDS = JSON.parse(document.body.dataset.words);
const UNITS = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];

function showBytes(size) {
  for (const [unit, bytes] of UNITS) {
    if (size >= bytes) { const value = size / bytes; return `${value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)} ${unit}`; }
  }
  return `${Math.round(size)} B`;
}

function showElapsed(seconds, step = 1) {
  const shown = step < 1 ? Math.round(seconds * 10) / 10 : Math.round(seconds);
  const hours = Math.floor(shown / 3600), minutes = Math.floor(shown % 3600 / 60);
  const rest = step < 1 ? (shown % 60).toFixed(1).padStart(4, "0") : String(Math.floor(shown % 60)).padStart(2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

async function unpack(level, rows, unit) {
  const packed = Uint8Array.from(atob(level.data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const view = new DataView(await new Response(stream).arrayBuffer());
  const found = [];
  for (let row = 0; row < rows; row++) {
    const values = new Float64Array(level.count);
    let sum = 0;
    for (let place = 0; place < level.count; place++) {
      sum += view.getInt32(4 * (row * level.count + place), true);
      values[place] = row === 0 ? sum / 1000 : sum < 0 ? -1 : sum * unit;
    }
    found.push(values);
  }
  return { times: found[0], values: found.slice(1) };
}

function firstAfter(times, at) {
  let low = 0, high = times.length;
  while (low < high) { const middle = (low + high) >> 1; if (times[middle] < at) low = middle + 1; else high = middle; }
  return low;
}

function element(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return made;
}

function niceStep(length, count) {
  const steps = [.1, .2, .5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  return steps.find((step) => length / step <= count) || Math.ceil(length / count / 86400) * 86400;
}

function ticks(top) {
  const raw = Math.max(top / 5, 1), unit = (UNITS.find(([, bytes]) => raw >= bytes) || ["B", 1])[1];
  const step = (ROUND.find((size) => size * unit >= raw) || 1024) * unit;
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, place) => place * step);
}

class Picture {
  constructor(figure) {
    this.figure = figure;
    this.data = JSON.parse(figure.querySelector("script.data").textContent);
    this.panels = this.data.panels.map((panel, number) => ({ ...panel, box: figure.querySelector(`[data-panel="${number}"]`), hidden: new Set(), ready: [] }));
    this.from = 0;
    this.to = this.data.length;
    figure.classList.add("live");
    for (const panel of this.panels) this.listen(panel);
    figure.querySelector(".tools").addEventListener("click", (event) => this.act(event.target.dataset.do));
    new ResizeObserver(() => this.draw()).observe(figure);
    this.draw();
  }

  act(what) {
    const width = this.to - this.from, middle = (this.from + this.to) / 2;
    if (what === "in") this.show(middle - width / 4, middle + width / 4);
    else if (what === "out") this.show(middle - width, middle + width);
    else if (what === "back") this.move(-width / 2);
    else if (what === "on") this.move(width / 2);
    else if (what === "all") this.show(0, this.data.length);
  }

  move(by) {
    const width = this.to - this.from, from = Math.min(Math.max(this.from + by, 0), this.data.length - width);
    this.show(from, from + width);
  }

  show(from, to) {
    const least = Math.min(1, this.data.length);
    if (to - from < least) { const middle = (from + to) / 2; from = middle - least / 2; to = middle + least / 2; }
    this.from = Math.max(0, from);
    this.to = Math.min(this.data.length, to);
    const whole = this.from === 0 && this.to === this.data.length;
    this.figure.querySelector(".range").textContent = whole ? "" : showElapsed(this.from, (this.to - this.from) / 20) + WORDS[" to "] + showElapsed(this.to, (this.to - this.from) / 20);
    this.draw();
  }

  draw() {
    cancelAnimationFrame(this.waiting);
    this.waiting = requestAnimationFrame(() => { for (const panel of this.panels) this.drawPanel(panel); });
  }

  async level(panel) {
    const share = (this.to - this.from) / this.data.length;
    let chosen = panel.levels.findIndex((level) => level.count * share >= WANTED);
    if (chosen < 0) chosen = panel.levels.length - 1;
    if (!panel.ready[chosen]) panel.ready[chosen] = unpack(panel.levels[chosen], panel.names.length + 1, panel.unit);
    return panel.ready[chosen];
  }

  async drawPanel(panel) {
    const turn = panel.turn = (panel.turn || 0) + 1;
    const level = await this.level(panel);
    if (turn !== panel.turn) return;
    const svg = panel.box.querySelector(".drawing svg"), width = Math.max(panel.box.clientWidth, 200);
    const x = (at) => LEFT + (at - this.from) / (this.to - this.from) * (width - LEFT - RIGHT);
    const y = (size) => HEIGHT - BOTTOM - size / panel.top * (HEIGHT - TOP - BOTTOM);
    const begin = Math.max(firstAfter(level.times, this.from) - 1, 0), end = Math.min(firstAfter(level.times, this.to) + 1, level.times.length);
    const clip = `clip-${this.figure.dataset.chart}-${panel.box.dataset.panel}`;
    const parts = [element("clipPath", { id: clip })];
    parts[0].append(element("rect", { x: LEFT, y: 0, width: width - LEFT - RIGHT, height: HEIGHT }));
    const inside = element("g", { "clip-path": `url(#${clip})` });
    for (const [phase, since, until] of this.data.spans) {
      if (until < this.from || since > this.to) continue;
      const wide = x(until) - x(since);
      if (wide >= .3) { const bar = element("rect", { class: `p-${phase}`, x: x(since), y: 4, width: wide, height: 8 }); bar.append(element("title", {}, this.data.words[phase])); inside.append(bar); }
    }
    this.areas(panel, level, begin, end, x, y, inside);
    const above = (high) => high > TOP + 14 ? high - 4 : high + 13;
    const named = panel.bounds.some(([, size]) => Math.abs(above(y(size)) - TOP - 30) < 14) ? TOP + 45 : TOP + 30;
    const few = this.data.marks.filter((mark) => mark[0] === "step" && mark[1] >= this.from && mark[1] <= this.to).length < 60;
    for (const [kind, at, says] of this.data.marks) {
      const late = at > this.data.length && at <= this.data.length + 2 && this.to === this.data.length;
      if (!(late || (at >= this.from && at <= this.to)) || !(MARKED.has(kind) || few)) continue;
      const place = Math.min(x(at), width - RIGHT - 1);
      const line = element("line", { class: `mark ${kind}`, x1: place, x2: place, y1: TOP, y2: HEIGHT - BOTTOM });
      line.append(element("title", {}, says));
      inside.append(line);
      if (kind === "death") {
        const left = place > width / 2, label = says.length > 40 ? says.slice(0, 39) + "…" : says;
        inside.append(element("text", { class: left ? "mark-name end" : "mark-name", x: left ? place - 5 : place + 5, y: named }, label));
      }
    }
    for (const size of ticks(panel.top)) {
      parts.push(element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(size), y2: y(size) }), element("text", { class: "tick end", x: LEFT - 6, y: y(size) + 4 }, showBytes(size)));
    }
    const step = niceStep(this.to - this.from, Math.max(2, Math.floor(width / 110)));
    for (let at = Math.ceil(this.from / step) * step; at <= this.to + 1e-6; at += step) {
      const place = x(at);
      parts.push(element("text", { class: place > width - 40 ? "tick end" : place < LEFT + 20 ? "tick" : "tick middle", x: Math.min(place, width - RIGHT), y: HEIGHT - 6 }, showElapsed(at, step)));
    }
    parts.push(inside);
    for (const [name, size] of panel.bounds) {
      const high = y(size);
      parts.push(element("line", { class: "bound", x1: LEFT, x2: width - RIGHT, y1: high, y2: high }), element("text", { class: "bound-name", x: LEFT + 6, y: above(high) }, `${name} ${showBytes(size)}`));
    }
    panel.cross = element("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    panel.chosen = element("rect", { class: "chosen", y: TOP, height: HEIGHT - TOP - BOTTOM, visibility: "hidden" });
    parts.push(panel.cross, panel.chosen);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("data-points", String(end - begin));
    svg.replaceChildren(...parts);
    panel.drawn = { level, width };
  }

  areas(panel, level, begin, end, x, y, inside) {
    const below = new Float64Array(end - begin);
    panel.names.forEach((name, number) => {
      if (panel.hidden.has(number)) return;
      const row = level.values[number];
      let path = "", pen = "M";
      if (!panel.stacked) {
        for (let place = begin; place < end; place++) {
          if (row[place] < 0) { pen = "M"; continue; }
          path += `${pen}${x(level.times[place]).toFixed(1)} ${y(row[place]).toFixed(1)}`;
          pen = "L";
        }
        inside.append(element("path", { class: `line ${panel.classes[number]}`, d: path }));
        return;
      }
      let back = "";
      for (let place = begin; place < end; place++) {
        const across = x(level.times[place]).toFixed(1), low = below[place - begin], high = low + Math.max(row[place], 0);
        path += `${pen}${across} ${y(high).toFixed(1)}`;
        back = `L${across} ${y(low).toFixed(1)}${back}`;
        below[place - begin] = high;
        pen = "L";
      }
      inside.append(element("path", { class: `area ${panel.classes[number]}`, d: `${path}${back}Z` }));
    });
  }

  listen(panel) {
    const svg = panel.box.querySelector(".drawing svg");
    svg.setAttribute("tabindex", "0");
    const at = (event) => {
      const box = svg.getBoundingClientRect(), share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
      return this.from + Math.min(Math.max(share, 0), 1) * (this.to - this.from);
    };
    let start = null;
    svg.addEventListener("pointerdown", (event) => { if (event.button === 0) { start = event.clientX; svg.setPointerCapture(event.pointerId); } });
    svg.addEventListener("pointermove", (event) => {
      this.point(at(event));
      if (start !== null && panel.chosen) {
        const box = svg.getBoundingClientRect();
        panel.chosen.setAttribute("x", Math.min(start, event.clientX) - box.left);
        panel.chosen.setAttribute("width", Math.abs(event.clientX - start));
        panel.chosen.setAttribute("visibility", "visible");
      }
    });
    svg.addEventListener("pointerup", (event) => {
      const far = start !== null && Math.abs(event.clientX - start) > 6;
      if (far) { const one = at({ clientX: start }), two = at(event); this.show(Math.min(one, two), Math.max(one, two)); }
      start = null;
      panel.chosen?.setAttribute("visibility", "hidden");
    });
    svg.addEventListener("pointercancel", () => { start = null; panel.chosen?.setAttribute("visibility", "hidden"); });
    svg.addEventListener("pointerleave", () => { if (start === null) this.leave(); });
    svg.addEventListener("dblclick", () => this.act("all"));
    svg.addEventListener("keydown", (event) => {
      const what = { "+": "in", "=": "in", "-": "out", ArrowLeft: "back", ArrowRight: "on", 0: "all", Home: "all" }[event.key];
      if (what && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); this.act(what); }
    });
    for (const button of panel.box.querySelectorAll(".legend button")) {
      button.disabled = false;
      button.addEventListener("click", () => {
        const number = Number(button.dataset.name), shown = panel.hidden.delete(number);
        if (!shown) panel.hidden.add(number);
        button.setAttribute("aria-pressed", String(shown));
        this.drawPanel(panel);
      });
    }
  }

  point(time) {
    for (const panel of this.panels) {
      if (!panel.drawn) continue;
      const { level, width } = panel.drawn, after = Math.min(firstAfter(level.times, time), level.times.length - 1);
      let near = after > 0 && time - level.times[after - 1] < level.times[after] - time ? after - 1 : after;
      if (level.times[near] < this.from || level.times[near] > this.to) near = level.times[after] >= this.from && level.times[after] <= this.to ? after : after - 1;
      if (near < 0 || level.times[near] < this.from || level.times[near] > this.to) { panel.cross.setAttribute("visibility", "hidden"); panel.box.querySelector(".readout").textContent = ""; continue; }
      const place = LEFT + (level.times[near] - this.from) / (this.to - this.from) * (width - LEFT - RIGHT);
      panel.cross.setAttribute("x1", place);
      panel.cross.setAttribute("x2", place);
      panel.cross.setAttribute("visibility", "visible");
      const phase = this.data.spans.find(([, since, until]) => since <= level.times[near] && level.times[near] < until);
      const shown = panel.names.map((name, number) => [name, level.values[number][near], number]).filter((row) => row[1] > 0 && !panel.hidden.has(row[2]));
      const sum = shown.reduce((total, row) => total + row[1], 0);
      const stamp = new Date((this.data.begin + level.times[near]) * 1000).toISOString().slice(11, 19);
      const words = shown.map(([name, size]) => `${name} ${showBytes(size)}`);
      panel.box.querySelector(".readout").textContent = [`${showElapsed(level.times[near], (this.to - this.from) / 20)} (${stamp}Z)`, phase ? this.data.words[phase[0]] : "", panel.stacked ? `${WORDS.together} ${showBytes(sum)}` : "", ...words].filter(Boolean).join(" · ");
    }
  }

  leave() {
    for (const panel of this.panels) { panel.cross?.setAttribute("visibility", "hidden"); panel.box.querySelector(".readout").textContent = ""; }
  }
}

function chooseTheme() {
  const root = document.documentElement, button = document.getElementById("theme");
  button.addEventListener("click", () => {
    const dark = root.classList.contains("dark") || (!root.classList.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
    root.classList.toggle("dark", !dark);
    root.classList.toggle("light", dark);
  });
}

async function copy(button) {
  const bytes = Uint8Array.from(atob(button.dataset.diff), (letter) => letter.charCodeAt(0));
  const text = new TextDecoder().decode(bytes);
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = WORDS.copied;
  } catch {
    getSelection().selectAllChildren(button.parentElement.querySelector("pre"));
    button.textContent = WORDS["selected: press Ctrl+C"];
  }
}

function start() {
  for (const item of document.querySelectorAll(".js")) item.hidden = false;
  chooseTheme();
  const pictures = "DecompressionStream" in window ? [...document.querySelectorAll("figure.chart")].map((figure) => new Picture(figure)) : [];
  if (!pictures.length) for (const item of document.querySelectorAll(".tools, .show, #charts > .js")) item.hidden = true;
  for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", () => copy(button));
  for (const button of document.querySelectorAll(".show")) {
    button.addEventListener("click", () => {
      const at = Number(button.closest("tr").dataset.at), room = Math.max(pictures[0].data.length / 40, 5);
      pictures[0].show(at - room, at + room);
      document.getElementById("charts").scrollIntoView();
    });
  }
}

start();
