"use strict";

// Everything that is shown comes from those who made pods and images. It is put into text nodes and
// attributes that hold text, never parsed as markup.

const seen = 60; // samples of a line: two minutes
const silence = 40000; // milliseconds without a sign of life until the connection counts as lost
const history = new Map(); // by pod: {cores: [...], memoryBytes: [...]}
let last = null; // the newest message
let lost = null; // since when there is no connection
let source = null, timer = 0, pause = 2000;

const $ = id => document.getElementById(id);

function text(node, value) {
  value = String(value);
  if (node.textContent !== value) node.textContent = value;
}

function attribute(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

function add(parent, name, value, kind) {
  const node = document.createElement(name);
  if (kind) node.className = kind;
  if (value !== undefined) node.textContent = value;
  return parent.appendChild(node);
}

function draw(parent, name, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return parent.appendChild(node);
}

// bytes writes an amount as the commands do: "512 B", "3.4 MiB".
function bytes(n) {
  if (n < 1024) return n + " B";
  let at = -1;
  do { n /= 1024; at++; } while (n >= 1024 && at < 5);
  return n.toFixed(1) + " " + "KMGTPE"[at] + "iB";
}

function cores(n) { return n < 0 ? "…" : n.toFixed(3); }

function count(n, one, many) { return n + " " + (n === 1 ? one : many); }

function age(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 120) return s + "s";
  if (s < 7200) return Math.floor(s / 60) + "m";
  if (s < 172800) return Math.floor(s / 3600) + "h";
  return Math.floor(s / 86400) + "d";
}

function clock(node, ms) {
  const at = new Date(ms), today = new Date().toDateString() === at.toDateString();
  attribute(node, "datetime", at.toISOString());
  text(node, (today ? "" : at.toLocaleDateString() + " ") + at.toLocaleTimeString());
}

// fill makes the children of a parent those of a list, one for each key. Children that stay are
// changed in place, so that focus and what was opened stay too.
function fill(parent, list, key, make, change) {
  const kept = parent.kept || (parent.kept = new Map()), now = new Map(), focused = document.activeElement;
  let at = parent.firstChild;
  for (const item of list) {
    let name = key(item);
    while (now.has(name)) name += "'";
    let node = kept.get(name);
    kept.delete(name);
    if (!node) node = make(item);
    now.set(name, node);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    change(node, item);
  }
  for (const node of kept.values()) node.remove();
  parent.kept = now;
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({preventScroll: true});
}

// row makes a row of a table; the names of its columns are shown beside the values on narrow screens.
function row(table, name) {
  const tr = document.createElement("tr"), labels = $(table).tHead.rows[0].cells;
  tr.setAttribute("role", "row");
  for (let n = 0; n < labels.length; n++) {
    const head = n === name, cell = add(tr, head ? "th" : "td");
    cell.setAttribute("role", head ? "rowheader" : "cell");
    if (head) cell.scope = "row";
    cell.dataset.label = labels[n].textContent;
  }
  return tr;
}

// table fills a table, and says what is left out of it.
function table(id, list, left, key, make, change) {
  const node = $(id), section = node.parentNode, more = section.querySelector(".more");
  fill(node.tBodies[0], list, key, make, change);
  node.hidden = list.length === 0;
  section.querySelector(".empty").hidden = list.length > 0;
  if (more) {
    more.hidden = left === 0;
    text(more, left === 0 ? "" : left + " more are not shown.");
  }
}

function spark(parent) {
  const svg = draw(parent, "svg", {class: "spark", viewBox: "0 0 84 22", role: "img"});
  draw(svg, "line", {x1: 0, y1: 21.5, x2: 84, y2: 21.5});
  draw(svg, "polyline", {points: ""});
  return svg;
}

// line draws what was seen of a figure, from 0 up to its most.
function line(svg, name, values, write) {
  const most = Math.max(...values), from = seen - values.length;
  const at = values.map((v, n) => ((from + n) / (seen - 1) * 82 + 1).toFixed(1) + "," + (20 - (most > 0 ? v / most : 0) * 17).toFixed(1));
  attribute(svg.lastChild, "points", at.join(" "));
  attribute(svg, "aria-label", values.length < 2 ? name + ": nothing to draw yet" :
    name + ", least " + write(Math.min(...values)) + ", most " + write(most) + ", now " + write(values[values.length - 1]));
}

function remember(pods) {
  const here = new Set();
  for (const p of pods) {
    here.add(p.id);
    if (!p.use) { history.delete(p.id); continue; }
    let h = history.get(p.id);
    if (!h) history.set(p.id, h = {cores: [], memoryBytes: []});
    for (const name of ["cores", "memoryBytes"]) {
      if (p.use[name] >= 0) h[name].push(p.use[name]);
      if (h[name].length > seen) h[name].shift();
    }
  }
  for (const id of history.keys()) if (!here.has(id)) history.delete(id);
}

function chosen(pods) {
  const wanted = $("filter").value.trim().toLowerCase(), order = $("order").value;
  const list = pods.filter(p => [p.namespace + "/" + p.name, p.handler, p.status].some(t => t.toLowerCase().includes(wanted)));
  const figure = p => order === "restarts" ? parseInt(p.restarts, 10) || 0 : p.use ? p.use[order] : -2;
  return order === "name" ? list : list.sort((a, b) => figure(b) - figure(a));
}

function figureCell(cell) {
  const box = add(cell, "div", undefined, "figure");
  add(box, "span");
  spark(box);
}

function showFigure(cell, name, value, values, write) {
  const box = cell.firstChild;
  text(box.firstChild, value);
  box.lastChild.toggleAttribute("hidden", !values);
  if (values) line(box.lastChild, name, values, write);
}

function podRow() {
  const tr = row("pods", 0), c = tr.cells;
  add(c[0], "span");
  add(c[0], "small");
  const details = add(c[0], "details"), summary = add(details, "summary");
  add(summary, "span");
  add(summary, "span", "", "unseen");
  add(details, "ul");
  add(c[2], "span", "", "chip");
  figureCell(c[6]);
  figureCell(c[7]);
  return tr;
}

function showPod(tr, p) {
  const c = tr.cells, of = p.namespace + "/" + p.name, h = history.get(p.id);
  text(c[0].children[0], p.name);
  text(c[0].children[1], p.namespace);
  const details = c[0].children[2], all = p.containers.length + p.moreContainers;
  text(details.firstChild.children[0], count(all, "container", "containers"));
  text(details.firstChild.children[1], " of " + of);
  fill(details.lastChild, p.containers, k => k.name, () => {
    const li = document.createElement("li");
    add(li, "span");
    add(li, "br");
    add(li, "small");
    return li;
  }, (li, k) => {
    text(li.firstChild, k.name + ": " + k.state + (k.restarts ? ", " + count(k.restarts, "restart", "restarts") : ""));
    text(li.lastChild, k.image);
  });
  text(c[1], p.handler || "–");
  text(c[2].firstChild, p.status);
  attribute(c[2].firstChild, "data-tone", p.tone);
  text(c[3], p.ready);
  text(c[4], p.restarts);
  text(c[5], age(last.now - p.created));
  showFigure(c[6], "CPU in cores", p.use ? cores(p.use.cores) : "–", h && h.cores, cores);
  showFigure(c[7], "Memory", p.use ? bytes(p.use.memoryBytes) : "–", h && h.memoryBytes, bytes);
}

const verdicts = {within: ["fine", "within"], over: ["failing", "over"], undeclared: ["over", "not declared"]};

function overheadRow() {
  const tr = row("overhead", 0), c = tr.cells;
  add(c[0], "span");
  add(c[0], "small");
  const svg = draw(c[3], "svg", {class: "bars", viewBox: "0 0 200 22", preserveAspectRatio: "none", role: "img"});
  draw(svg, "rect", {class: "track", x: 0, y: 1, width: 200, height: 20});
  draw(svg, "rect", {class: "declared", x: 0, y: 1, width: 0, height: 9});
  draw(svg, "rect", {class: "measured", x: 0, y: 12, width: 0, height: 9});
  add(c[4], "span", "", "chip");
  return tr;
}

function showOverhead(most) {
  return (tr, p) => {
    const c = tr.cells, u = p.use, [tone, word] = verdicts[u.verdict] || ["over", u.verdict], svg = c[3].firstChild;
    const declared = u.declaredBytes > 0 ? bytes(u.declaredBytes) : "–";
    text(c[0].children[0], p.name);
    text(c[0].children[1], p.namespace + ", " + p.handler);
    text(c[1], declared);
    text(c[2], bytes(u.measuredBytes));
    attribute(svg.children[1], "width", (u.declaredBytes / most * 200).toFixed(1));
    attribute(svg.children[2], "width", (u.measuredBytes / most * 200).toFixed(1));
    attribute(svg, "data-tone", tone);
    attribute(svg, "aria-label", (u.declaredBytes > 0 ? "Declared " + declared : "Nothing declared") + ", measured " + bytes(u.measuredBytes));
    text(c[4].firstChild, word);
    attribute(c[4].firstChild, "data-tone", tone);
  };
}

function showImage(tr, m) {
  text(tr.cells[0], m.name);
  const list = tr.cells[1].firstChild;
  fill(list, m.variants, v => v.platform + " " + v.bytes, () => {
    const li = document.createElement("li");
    li.className = "variant";
    for (let n = 0; n < 4; n++) add(li, n < 2 ? "span" : "small");
    return li;
  }, (li, v) => {
    text(li.children[0], v.platform);
    text(li.children[1], bytes(v.bytes));
    text(li.children[2], v.handlers ? "for " + v.handlers : "for no handler");
    text(li.children[3], v.kind + (v.pinned ? ", pinned" : ""));
  });
  const more = tr.cells[1].lastChild;
  more.hidden = m.moreVariants === 0;
  text(more, m.moreVariants + " more");
}

function imageRow() {
  const tr = row("images", 0);
  add(tr.cells[1], "ul");
  add(tr.cells[1], "p", "", "muted");
  return tr;
}

function eventRow() {
  const tr = row("events", -1);
  add(tr.cells[0], "time");
  add(tr.cells[1], "span", "", "chip");
  return tr;
}

function showEvent(tr, e) {
  const c = tr.cells;
  clock(c[0].firstChild, e.at);
  text(c[1].firstChild, e.warning ? "Warning" : "Normal");
  attribute(c[1].firstChild, "data-tone", e.warning ? "waiting" : "over");
  text(c[2], e.reason);
  text(c[3], e.object);
  text(c[4], e.message + (e.count > 1 ? " (" + e.count + " times)" : ""));
}

function showNode(s) {
  const n = s.node, sum = s.total;
  text($("node"), n.name || "Sunaba node");
  document.title = (n.name ? n.name + " – " : "") + "Sunaba";
  text($("version"), "Sunaba " + n.version);
  fill($("problems"), s.problems, t => t, () => document.createElement("li"), text);
  $("problems").hidden = s.problems.length === 0;
  const figures = [
    ["Pods", s.pods.length + s.morePods, sum.running + " running" + (sum.failing ? ", " + sum.failing + " failing" : "")],
    ["CPU of pods", cores(sum.cores), "cores"],
    ["Memory of pods", bytes(sum.memoryBytes), "with their overhead"],
    ["Overhead", bytes(sum.measuredBytes), bytes(sum.declaredBytes) + " declared"],
    ["Images", s.images.length + s.moreImages, bytes(n.imageBytes) + " on disk"],
  ];
  fill($("figures"), figures, f => f[0], () => {
    const div = document.createElement("div");
    add(div, "dt");
    const dd = add(div, "dd");
    add(dd, "span");
    add(dd, "small");
    return div;
  }, (div, f) => {
    text(div.firstChild, f[0]);
    text(div.lastChild.firstChild, f[1]);
    text(div.lastChild.lastChild, f[2]);
  });
  const health = n.conditions.map(c => [c.type + ": " + c.status, c.good ? "fine" : "failing", c.message]).concat(
    n.handlers.map(h => ["Handler " + h.name + (h.default ? " (default)" : "") + (h.version ? ", with " + h.version : ""), h.problem ? "failing" : "over", h.problem]));
  fill($("health"), health, h => h[0], () => {
    const li = document.createElement("li");
    add(li, "span", "", "chip");
    add(li, "span", "", "why");
    return li;
  }, (li, h) => {
    text(li.firstChild, h[0]);
    attribute(li.firstChild, "data-tone", h[1]);
    text(li.lastChild, h[2]);
    li.lastChild.hidden = !h[2];
  });
}

function showPods(s) {
  const pods = chosen(s.pods), all = s.pods.length + s.morePods;
  table("pods", pods, s.morePods, p => p.id, podRow, showPod);
  text($("pods").parentNode.querySelector(".empty"), s.pods.length ? "No pod has the text of the filter." : "No pods.");
  text($("pods-count"), pods.length === all ? count(all, "pod", "pods") : pods.length + " of " + count(all, "pod", "pods"));
}

function show() {
  if (!last) return;
  const s = last.state, running = s.pods.filter(p => p.use);
  showNode(s);
  showPods(s);
  const most = Math.max(1, ...running.map(p => Math.max(p.use.declaredBytes, p.use.measuredBytes)));
  table("overhead", running, 0, p => p.id, overheadRow, showOverhead(most));
  table("images", s.images, s.moreImages, m => m.name, imageRow, showImage);
  table("events", s.events, s.moreEvents, e => e.at + e.object + e.reason + e.message, eventRow, showEvent);
  text($("events").parentNode.querySelector(".empty"), s.node.manifests ? "No events." : "No events: this server runs no pods of manifests, whose events it would record.");
}

// connection says how the connection is, only when that changes.
function connection(tone, words, since) {
  const node = $("connection");
  if (node.dataset.tone === tone && node.dataset.words === words) return;
  node.dataset.tone = tone;
  node.dataset.words = words;
  node.textContent = words;
  if (since) {
    node.append(" since ");
    clock(add(node, "time"), since);
    node.append(", connecting again");
  }
}

function alive() {
  clearTimeout(timer);
  timer = setTimeout(() => { source.close(); away(); }, silence);
  lost = null;
  pause = 2000;
  connection("fine", "Live");
}

function away() {
  lost = lost || Date.now();
  connection("failing", last ? "Connection lost" : "No connection", lost);
  if (source.readyState !== EventSource.CLOSED) return; // the browser connects again
  clearTimeout(timer);
  timer = setTimeout(connect, pause);
  pause = Math.min(pause * 2, 15000);
}

function connect() {
  source = new EventSource("events");
  source.onerror = away;
  source.addEventListener("alive", alive);
  source.addEventListener("state", e => {
    last = JSON.parse(e.data);
    remember(last.state.pods);
    alive();
    show();
  });
}

$("filter").addEventListener("input", show);
$("order").addEventListener("change", show);
connect();
