// SPDX-License-Identifier: MIT
'use strict';
// Draws the page from the JSON beside it. No library, no network; every text of the data is set by
// textContent, never parsed as HTML.
// Of this page: a notebook may hold several.
const newest = (id) => [...document.querySelectorAll('#' + id)].at(-1);
const report = JSON.parse(newest('report-data').textContent);
const runs = report.runs;
const many = runs.length > 1;
const view = {x: 'step', log: false, smooth: 0};
const drawers = [];
const tip = newest('tip');

function el(name, options, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(options || {})) {
    if (key === 'text') node.textContent = value;
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(key, value);
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}
function shape(name, attributes, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
const color = (i) => `var(--c${i % 8})`;

// --- numbers and times as text ---
function number(value) {
  if (value === null || value === undefined) return '–';
  if (typeof value !== 'number') return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e11) return value.toLocaleString('en');
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(3).replace('e+', 'e');
  return String(Number(value.toPrecision(5)));
}
// JSON has no NaN: a metric that is NaN or Inf is null.
const finite = (value) => value === null ? 'NaN' : number(value);
function tickText(value) {
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size >= 1e6) return Number((value / 1e6).toPrecision(4)) + 'M';
  if (size >= 1e4) return Number((value / 1e3).toPrecision(4)) + 'k';
  if (size < 1e-3) return value.toExponential(Number.isInteger(Math.log10(size)) ? 0 : 1).replace('e+', 'e');
  return String(Number(value.toPrecision(4)));
}
function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return '–';
  if (seconds < 1) return Math.round(seconds * 1000) + ' ms';
  if (seconds < 120) return Number(seconds.toFixed(seconds < 10 ? 1 : 0)) + ' s';
  if (seconds < 7200) return Math.round(seconds / 60) + ' min';
  if (seconds < 172800) return (seconds / 3600).toFixed(1) + ' h';
  return Math.floor(seconds / 86400) + ' d ' + Math.round(seconds % 86400 / 3600) + ' h';
}
function bytes(value) {
  if (typeof value !== 'number') return '–';
  return value >= 1 << 30 ? (value / (1 << 30)).toFixed(2) + ' GiB' : (value / (1 << 20)).toFixed(1) + ' MiB';
}
const two = (n) => String(n).padStart(2, '0');
function clock(unix) {
  if (typeof unix !== 'number') return '–';
  const d = new Date(unix * 1000);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}`;
}

// --- ticks ---
function linearTicks(low, high, count, whole) {
  const raw = (high - low) / Math.max(1, count);
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const steps = [1, 2, 2.5, 5, 10].map((m) => m * power);
  const step = whole && raw <= 1 ? 1 : steps.find((s) => s >= raw * 0.999 && !(whole && s % 1)) || raw;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) ticks.push(i * step);
  return ticks.length < 2 && count < 12 ? linearTicks(low, high, count + 1, whole) : ticks;
}
function logTicks(low, high, count) {
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  const steps = to - from <= 2 ? [1, 2, 5] : [1];
  let ticks = [];
  for (let e = from; e <= to; ++e) for (const m of steps) ticks.push(m * Math.pow(10, e));
  ticks = ticks.filter((t) => t >= low * 0.999 && t <= high * 1.001);
  if (ticks.length < 2) return linearTicks(low, high, count);
  const keep = Math.ceil(ticks.length / (count + 1));
  return ticks.filter((_, i) => i % keep === 0);
}
// Ticks of a time axis, each with its label: the labels differ because they are as fine as the steps.
function timeTicks(low, high, count) {
  const units = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800];
  const step = units.find((u) => (high - low) / u <= count) || Math.ceil((high - low) / count / 604800) * 604800;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); ++i) ticks.push(i * step);
  return {ticks, label: (seconds) => timeLabel(seconds, step)};
}
function timeLabel(seconds, step) {
  if (seconds === 0) return '0';
  if (step < 1) return seconds.toFixed(step < 0.01 ? 3 : step < 0.1 ? 2 : 1) + ' s';
  const s = Math.round(seconds), m = Math.floor(s / 60), h = Math.floor(s / 3600), d = Math.floor(s / 86400);
  if (step < 60) return s < 60 ? s + ' s' : s < 3600 ? `${m}:${two(s % 60)}` : `${h}:${two(m % 60)}:${two(s % 60)}`;
  if (step < 3600) return s < 3600 ? m + ' min' : `${h} h ${two(m % 60)}`;
  if (step < 86400) return s < 172800 ? h + ' h' : `${d} d ${h % 24} h`;
  return d + ' d';
}

// Writes the labels of an axis, from left to right, within `low` and `high`; leaves out one that
// would touch the one before it. `labels`: [{x, text}], each centred at x where there is room.
function axisLabels(svg, y, low, high, labels) {
  let taken = -Infinity;
  for (const {x, text} of labels) {
    const label = shape('text', {class: 'label', y, 'text-anchor': 'start'}, text);
    svg.append(label);
    // Nothing is measured in a page that is not shown.
    const width = label.getComputedTextLength() || 6.2 * text.length;
    const from = Math.max(low, Math.min(x - width / 2, high - width));
    if (from < taken + 8) { label.remove(); continue; }
    label.setAttribute('x', from.toFixed(1));
    taken = from + width;
  }
}

// Exponential moving average whose start is not pulled to zero, as TensorBoard smooths.
function smoothed(values, weight) {
  // The average of equal values differs from them by rounding only, which a chart would magnify.
  const finite = values.filter((v) => v !== null);
  if (weight <= 0 || finite.every((v) => v === finite[0])) return values;
  let last = 0, scale = 0;
  return values.map((v) => {
    if (v === null) return null;
    last = last * weight + (1 - weight) * v;
    scale = scale * weight + (1 - weight);
    return last / scale;
  });
}

function showTip(lines, left, top) {
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const room = document.documentElement.clientWidth;
  tip.style.left = Math.max(4, Math.min(left + 14, room - tip.offsetWidth - 8)) + window.scrollX + 'px';
  tip.style.top = top + 14 + window.scrollY + 'px';
}
const hideTip = () => { tip.hidden = true; };

// One chart. `lines`: [{name, color, dash, run, data: {s, v, t, b}}]: steps, values, seconds, and the
// points that begin a session where the values begin again with each.
function chart(parent, title, unit, lines) {
  lines = lines.filter((l) => l.data && l.data.s.length > 0);
  if (lines.length === 0) return;
  const caption = el('figcaption', {}, el('h3', {}, ...wrappable(title)));
  if (unit) caption.append(el('span', {text: unit}));
  if (lines.length > 1 || many) {
    for (const l of lines) {
      const key = el('span', {class: 'key'}, el('i', {class: l.dash ? 'dash' : '', style: `border-color:${l.color}`}), l.name);
      caption.append(key);
    }
  }
  const figure = el('figure', {}, caption);
  parent.append(figure);
  // One point has no course to draw, and no axis would fit it.
  if (lines.every((l) => l.data.s.length === 1)) {
    for (const l of lines) {
      const name = lines.length > 1 || many ? l.name + ' ' : '';
      figure.append(el('p', {class: 'single'}, el('b', {text: finite(l.data.v[0])}), el('span', {class: 'quiet', text: ` ${name}at step ${number(l.data.s[0])}`})));
    }
    return;
  }
  const sessionKey = el('span', {class: 'key'}, el('i', {class: 'begin'}), 'a session begins');
  caption.append(sessionKey);
  const height = 230, left = 52, right = 12, top = 10, bottom = 26;
  drawers.push(() => {
    figure.querySelectorAll('svg').forEach((old) => old.remove());
    sessionKey.hidden = true;
    const width = Math.max(260, figure.clientWidth - 20);
    const svg = shape('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', tabindex: 0, 'aria-label': `${title}: ${lines.map((l) => l.name).join(', ')}. Arrow keys move along the curve.`});
    figure.append(svg);
    const byTime = view.x === 'time' && lines.some((l) => l.data.t && l.data.t.some((t) => t !== null));
    const xs = lines.map((l) => byTime ? (l.data.t || l.data.s.map(() => null)) : l.data.s);
    const ys = lines.map((l) => smoothed(l.data.v, view.smooth));
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    lines.forEach((l, i) => {
      l.data.v.forEach((raw, j) => {
        const x = xs[i][j];
        if (x === null) return;
        x0 = Math.min(x0, x); x1 = Math.max(x1, x);
        for (const v of view.smooth > 0 ? [raw, ys[i][j]] : [raw]) {
          if (v === null || (view.log && v <= 0)) continue;
          y0 = Math.min(y0, v); y1 = Math.max(y1, v);
        }
      });
    });
    if (!isFinite(x0) || !isFinite(y0)) {
      svg.append(shape('text', {x: width / 2, y: height / 2, 'text-anchor': 'middle'}, view.log ? 'no value above 0' : 'no finite value'));
      return;
    }
    if (x0 === x1) { x0 -= byTime ? 0 : 1; x1 += 1; }
    if (y1 - y0 <= 1e-9 * Math.max(Math.abs(y0), Math.abs(y1))) {
      const pad = view.log ? 0 : Math.abs(y0) * 0.1 || 1;
      if (view.log) { y0 /= 2; y1 *= 2; } else { y0 -= pad; y1 += pad; }
    } else if (!view.log) {
      const pad = (y1 - y0) * 0.06;
      y0 = y0 >= 0 ? Math.max(0, y0 - pad) : y0 - pad;
      y1 += pad;
    }
    const fx = (x) => left + (x - x0) / (x1 - x0) * (width - left - right);
    const scale = view.log ? Math.log10 : (v) => v;
    const fy = (y) => height - bottom - (scale(y) - scale(y0)) / (scale(y1) - scale(y0)) * (height - top - bottom);
    for (const y of (view.log ? logTicks : linearTicks)(y0, y1, 5)) {
      svg.append(shape('line', {class: 'grid', x1: left, x2: width - right, y1: fy(y), y2: fy(y)}));
      svg.append(shape('text', {x: left - 6, y: fy(y) + 4, 'text-anchor': 'end'}, tickText(y)));
    }
    const across = Math.max(3, Math.floor((width - left) / 90));
    const axis = byTime ? timeTicks(x0, x1, across) : {ticks: linearTicks(x0, x1, across, true), label: tickText};
    for (const x of axis.ticks) {
      svg.append(shape('line', {class: 'axis', x1: fx(x), x2: fx(x), y1: height - bottom, y2: height - bottom + 4}));
    }
    axisLabels(svg, height - bottom + 17, left - 20, width - 2, axis.ticks.map((x) => ({x: fx(x), text: axis.label(x)})));
    svg.append(shape('line', {class: 'axis', x1: left, x2: width - right, y1: height - bottom, y2: height - bottom}));
    if (!many && !byTime) {
      for (const session of runs[0].sessions.slice(1)) {
        const x = session.first_step;
        if (typeof x !== 'number' || x <= x0 || x >= x1) continue;
        const mark = shape('line', {class: 'mark', x1: fx(x), x2: fx(x), y1: top, y2: height - bottom});
        mark.append(shape('title', {}, `session ${session.session} began at step ${x}`));
        svg.append(mark);
        sessionKey.hidden = false;
      }
    }
    const path = (xsOf, values, begins, options) => {
      let d = '', open = false;
      const dots = [];
      values.forEach((v, j) => {
        const x = xsOf[j];
        if (v === null || x === null || (view.log && v <= 0)) { open = false; return; }
        if (begins.has(j)) open = false;
        const point = `${fx(x).toFixed(1)} ${fy(v).toFixed(1)}`;
        // The first point of a part is drawn even if it stays its only one.
        d += open ? `L${point}` : `M${point}h0`;
        open = true;
        dots.push(point);
      });
      svg.append(shape('path', {d, fill: 'none', 'stroke-linejoin': 'round', 'stroke-linecap': 'round', ...options}));
      if (dots.length <= 40 && !options.opacity) {
        for (const dot of dots) {
          const [cx, cy] = dot.split(' ');
          svg.append(shape('circle', {cx, cy, r: 2.4, style: `fill:${options.tint}`}));
        }
      }
    };
    lines.forEach((l, i) => {
      const dash = l.dash ? '6 4' : 'none';
      const begins = new Set(l.data.b || []);
      if (view.smooth > 0) path(xs[i], l.data.v, begins, {class: 'raw', style: `stroke:${l.color}`, 'stroke-width': 1, opacity: 0.25});
      path(xs[i], ys[i], begins, {class: 'curve', style: `stroke:${l.color}`, 'stroke-width': 1.8, 'stroke-dasharray': dash, tint: l.color});
      l.data.v.forEach((v, j) => {
        if (v !== null || xs[i][j] === null) return;
        svg.append(shape('text', {x: fx(xs[i][j]), y: top + 8, 'text-anchor': 'middle', class: 'nan', style: 'fill:var(--bad)'}, '×'));
      });
    });
    const cross = shape('line', {class: 'cross', y1: top, y2: height - bottom, visibility: 'hidden'});
    svg.append(cross);
    const nearest = (list, x) => {
      let low = 0, high = list.length - 1;
      while (low < high) {
        const middle = (low + high) >> 1;
        if ((list[middle] === null ? -Infinity : list[middle]) < x) low = middle + 1; else high = middle;
      }
      return low > 0 && Math.abs(list[low - 1] - x) < Math.abs(list[low] - x) ? low - 1 : low;
    };
    const show = (x) => {
      const box = svg.getBoundingClientRect();
      const at = xs.map((list) => nearest(list, x));
      const first = xs[0][at[0]];
      cross.setAttribute('x1', fx(first)); cross.setAttribute('x2', fx(first));
      cross.setAttribute('visibility', 'visible');
      const rows = [el('b', {text: byTime ? 'after ' + duration(first) : 'step ' + number(first)})];
      lines.forEach((l, i) => {
        const j = at[i];
        const where = l.data.s[j] !== lines[0].data.s[at[0]] ? ` (step ${number(l.data.s[j])})` : '';
        rows.push(el('div', {}, el('i', {style: `background:${l.color}`}), `${l.name}: ${finite(l.data.v[j])}${where}`));
      });
      showTip(rows, box.left + fx(first) * box.width / width, box.top + 20);
      return at[0];
    };
    let index = -1;
    svg.addEventListener('pointermove', (event) => {
      const box = svg.getBoundingClientRect();
      index = show(x0 + ((event.clientX - box.left) * width / box.width - left) / (width - left - right) * (x1 - x0));
    });
    const leave = () => { hideTip(); cross.setAttribute('visibility', 'hidden'); };
    svg.addEventListener('pointerleave', leave);
    svg.addEventListener('blur', leave);
    svg.addEventListener('keydown', (event) => {
      const far = Math.max(1, Math.round(xs[0].length / 20));
      const moves = {ArrowRight: 1, ArrowLeft: -1, PageDown: far, PageUp: -far, Home: -1e9, End: 1e9};
      if (event.key === 'Escape') return leave();
      if (!(event.key in moves)) return;
      event.preventDefault();
      index = Math.max(0, Math.min(xs[0].length - 1, index + moves[event.key]));
      show(xs[0][index]);
    });
  });
}

// Long names and paths wrap behind "_" and "/", not inside a word.
function wrappable(name) {
  const parts = String(name).match(/[^_/]*[_/]+|[^_/]+/g) || [];
  return parts.flatMap((part, i) => i > 0 ? [el('wbr'), part] : [part]);
}

// Option `stack`: on a phone each row is a list of its columns, each after its name, so that no column
// is hidden beside the others.
function table(headers, rows, options) {
  const isNumber = (options && options.numbers) || [];
  const isTight = (options && options.tight) || [];
  const stack = options && options.stack;
  const head = el('tr', {}, ...headers.map((h, i) => el('th', {scope: 'col', class: isNumber.includes(i) ? 'n' : null}, ...wrappable(h))));
  const body = rows.map((row) => {
    const cells = row.cells || row;
    return el('tr', {class: row.className}, ...cells.map((cell, i) => {
      const td = el('td', {class: isNumber.includes(i) ? 'n' : isTight.includes(i) ? 't' : null, 'data-name': stack ? headers[i] : null});
      td.append(...(cell instanceof Node ? [cell] : wrappable(cell === null || cell === undefined ? '–' : cell)));
      return td;
    }));
  });
  return el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': headers.join(', ')}, el('table', {class: stack ? 'stack' : options && options.className}, el('thead', {}, head), el('tbody', {}, ...body)));
}
function section(parent, title, ...children) {
  const node = el('section', {id: title.toLowerCase().replace(/[^a-z0-9]+/g, '-')}, el('h2', {text: title}), ...children);
  parent.append(node);
  return node;
}
const tones = {finished: 'good', running: 'good', stopped: 'warn', killed: 'bad', failed: 'bad', error: 'bad', no_valid_checkpoint: 'bad'};
const badge = (state) => el('span', {class: 'badge ' + (tones[state] || 'warn'), text: state.replaceAll('_', ' ')});
const text = (value) => typeof value === 'string' ? value : typeof value === 'number' ? String(value).replace('e+', 'e')
  : Array.isArray(value) ? value.map(text).join(', ')
    : value && typeof value === 'object' ? Object.entries(value).map(([k, v]) => `${k}: ${text(v)}`).join(', ') : JSON.stringify(value);

function summary(parent, run) {
  const status = run.status;
  const cards = el('div', {class: 'cards'});
  const card = (label, value) => {
    if (value === null || value === undefined || value === '' || value === '–') return;
    cards.append(el('div', {class: 'card'}, el('span', {}, ...wrappable(label)), el('b', {text: value})));
  };
  const total = status.max_steps ? ` of ${number(status.max_steps)}` : '';
  card('step', status.step === undefined ? null : number(status.step) + total);
  card('loss', status.loss === undefined ? null : finite(status.loss));
  for (const [key, value] of Object.entries(status.evaluation || {}).slice(0, 4)) if (key !== 'step') card(key, finite(value));
  card('best ' + (status.best_metric_name || run.config.metric_for_best_model || 'metric'), status.best_metric === undefined ? null : number(status.best_metric) + (status.best_global_step ? ` at ${number(status.best_global_step)}` : ''));
  const last = (status.evaluation || {}).step;
  if (status.state === 'finished' && last > status.best_global_step && !run.config.load_best_model_at_end) card('kept model', `step ${number(last)}, not the best (load_best_model_at_end)`);
  card('training time', run.seconds ? duration(run.seconds) : null);
  card('sessions', run.sessions.length ? String(run.sessions.length) : null);
  card('tokens per second', status.tokens_per_second ? number(Math.round(status.tokens_per_second)) : null);
  card('peak memory', run.peak_memory_mib ? number(run.peak_memory_mib) + ' MiB' : null);
  card('parameters', run.parameters ? number(run.parameters) : null);
  card('cost', run.cost_text ? run.cost_text.split(', ')[0].replace(' spent', '') : null);
  card('time left', status.seconds_left ? duration(status.seconds_left) : null);
  const node = section(parent, many ? run.name : 'Summary', el('p', {}, badge(status.state), ' ', el('span', {class: 'quiet', text: [run.config.task, run.model, run.device].filter(Boolean).join(' · ')})), cards);
  if (status.last_error && status.state !== 'finished') node.append(el('p', {class: 'bad', text: `last error (${clock(status.last_error.time)}): ${status.last_error.message}`}));
  for (const note of run.notes) node.append(el('p', {class: note.includes('damaged') ? 'warn' : 'quiet', text: note}));
}

function comparison(parent) {
  const names = ['', ...runs.map((r) => r.name)];
  const numbers = runs.map((_, i) => i + 1);
  // Times and counts after what the models are worth.
  const isCount = (m) => /(_runtime|_per_second|_samples|total_flos|epoch)$/.test(m);
  const metrics = [...new Set(runs.flatMap((r) => Object.keys(r.results)))].sort((a, b) => isCount(a) - isCount(b));
  const node = section(parent, 'Comparison', el('h3', {text: 'Final metrics'}),
    table(names, metrics.map((m) => [m, ...runs.map((r) => finite(r.results[m]))]), {numbers, className: 'compare'}));
  if (report.differences.length === 0) { node.append(el('p', {class: 'quiet', text: 'The configurations are the same.'})); return; }
  node.append(el('h3', {text: 'Keys that differ'}), table(names, report.differences.map((d) => [d.key, ...d.values.map((v) => v === null ? '–' : text(v))]), {className: 'compare'}));
}

function lineOf(run, index, key, options) {
  const data = run.series[key];
  return data ? {name: (many ? run.name + (options.suffix || '') : options.name || key), color: options.color || color(index), dash: options.dash, data} : null;
}
function curves(parent) {
  const node = section(parent, 'Curves');
  const tools = el('div', {class: 'tools'});
  const axis = el('select', {id: 'axis'}, el('option', {value: 'step', text: 'step'}), el('option', {value: 'time', text: 'time'}));
  const log = el('input', {type: 'checkbox', id: 'log'});
  const smooth = el('input', {type: 'range', id: 'smooth', min: 0, max: 0.99, step: 0.01, value: 0});
  const amount = el('output', {for: 'smooth', text: '0'});
  axis.addEventListener('change', () => { view.x = axis.value; draw(); });
  log.addEventListener('change', () => { view.log = log.checked; draw(); });
  smooth.addEventListener('input', () => { view.smooth = Number(smooth.value); amount.textContent = smooth.value; draw(); });
  tools.append(el('label', {}, 'x axis', axis), el('label', {}, log, 'logarithmic'), el('label', {}, 'smoothing', smooth, amount));
  const charts = el('div', {class: 'charts'});
  node.append(tools, charts);
  const all = (key, options) => runs.map((run, i) => lineOf(run, i, key, options || {})).filter(Boolean);
  chart(charts, 'Loss', '', runs.flatMap((run, i) => [
    lineOf(run, i, 'loss', {name: 'training', suffix: many ? ', training' : ''}),
    lineOf(run, i, 'eval_loss', {name: 'evaluation', suffix: ', evaluation', dash: true, color: many ? color(i) : color(1)})]).filter(Boolean));
  const known = new Set(['loss', 'eval_loss', 'learning_rate', 'grad_norm', 'tokens_per_second', 'memory_mib']);
  const others = [...new Set(runs.flatMap((run) => Object.keys(run.series)))].filter((key) => !known.has(key));
  // What is measured in training and in evaluations has one picture.
  const both = new Set(others.filter((k) => others.includes('eval_' + k)));
  for (const key of both) {
    chart(charts, key, '', runs.flatMap((run, i) => [
      lineOf(run, i, key, {name: 'training', suffix: many ? ', training' : ''}),
      lineOf(run, i, 'eval_' + key, {name: 'evaluation', suffix: ', evaluation', dash: true, color: many ? color(i) : color(1)})]).filter(Boolean));
  }
  for (const key of others.filter((k) => k.startsWith('eval_') && !both.has(k.slice(5)))) chart(charts, key, '', all(key));
  chart(charts, 'Learning rate', '', all('learning_rate', {name: 'learning rate'}));
  chart(charts, 'Gradient norm', 'before clipping', all('grad_norm', {name: 'gradient norm'}));
  chart(charts, 'Throughput', 'tokens per second, mean of the session', all('tokens_per_second', {name: 'tokens per second'}));
  chart(charts, 'Memory', 'peak of the session so far, MiB', all('memory_mib', {name: 'memory'}));
  for (const key of others.filter((k) => !k.startsWith('eval_') && !both.has(k))) chart(charts, key, '', all(key));
  if (charts.children.length === 0) node.append(el('p', {class: 'quiet', text: 'Nothing was logged yet.'}));
}

const endings = {finished: '--good', stopped: '--warn', running: '--c5', killed: '--bad', error: '--bad'};
function timeline(parent, run) {
  if (run.sessions.length === 0) return;
  const node = section(parent, many ? `Sessions of ${run.name}` : 'Sessions');
  const timed = run.sessions.filter((s) => typeof s.start === 'number');
  const figure = el('figure', {});
  if (timed.length > 0) node.append(figure);
  if (timed.length > 0) drawers.push(() => {
    figure.replaceChildren();
    const width = Math.max(260, figure.clientWidth - 20), height = 74, left = 8, right = 8;
    const x0 = Math.min(...timed.map((s) => s.start));
    const x1 = Math.max(x0 + 1, ...timed.map((s) => s.end || s.start));
    const fx = (x) => left + (x - x0) / (x1 - x0) * (width - left - right);
    const svg = shape('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'sessions by time'});
    const keys = [...new Set(timed.map((s) => s.ending))].map((ending) => el('span', {class: 'key'}, el('i', {class: 'block', style: `background:var(${endings[ending] || '--warn'})`}), ending));
    if (timed.some((s) => (s.rollbacks || []).length > 0)) keys.push(el('span', {class: 'key'}, el('span', {class: 'bad', text: '↶ '}), 'rollback'));
    figure.append(el('figcaption', {}, ...keys), svg);
    const axis = timeTicks(0, x1 - x0, Math.max(3, Math.floor(width / 100)));
    for (const t of axis.ticks) {
      svg.append(shape('line', {class: 'grid', x1: fx(x0 + t), x2: fx(x0 + t), y1: 6, y2: 50}));
    }
    axisLabels(svg, 66, 0, width, axis.ticks.map((t) => ({x: fx(x0 + t), text: t === 0 ? clock(x0) : '+' + axis.label(t)})));
    for (const s of timed) {
      const from = fx(s.start), to = Math.max(from + 3, fx(s.end || s.start));
      const bar = shape('rect', {class: 'session', x: from, y: 14, width: to - from, height: 28, rx: 3, style: `fill:var(${endings[s.ending] || '--warn'})`});
      bar.append(shape('title', {}, `session ${s.session}: ${s.ending}, steps ${number(s.first_step)} to ${number(s.last_step)}${s.resumed_from === undefined ? '' : `, resumed from ${number(s.resumed_from)}`}, ${clock(s.start)}, ${duration(s.end - s.start)}`));
      svg.append(bar);
      if (to - from > 8 + 7 * String(s.session).length) svg.append(shape('text', {x: (from + to) / 2, y: 32, 'text-anchor': 'middle', style: 'fill:var(--back);font-weight:650'}, s.session));
      for (const back of s.rollbacks || []) svg.append(shape('text', {x: fx(back.time), y: 11, 'text-anchor': 'middle', style: 'fill:var(--bad)'}, '↶'));
    }
  });
  node.append(table(['session', 'began', 'lasted', 'steps', 'ended', 'where'], run.sessions.map((s) => {
    const ended = el('span', {class: tones[s.ending] || 'warn', text: s.reason && s.reason.startsWith(s.ending) ? s.reason : s.ending});
    const notes = [s.reason, ...(s.rollbacks || []).map((b) => `rolled back from step ${b.from} to ${b.to}: ${b.reason}`)].filter((r) => r && !r.startsWith(s.ending));
    const cell = el('span', {class: 'note'}, ended, notes.length ? ': ' + notes.join('; ') : '');
    return [s.session, clock(s.start), duration(s.end - s.start), `${number(s.first_step)} – ${number(s.last_step)}${s.resumed_from === undefined ? '' : `, resumed from ${number(s.resumed_from)}`}`, cell,
      el('span', {class: 'note', text: [s.host, s.device].filter(Boolean).join(', ')})];
  }), {numbers: [0], tight: [1, 2, 3], stack: true}));
}

function checkpoints(parent, run) {
  const list = run.status.checkpoints || [];
  if (list.length === 0) return;
  section(parent, many ? `Checkpoints of ${run.name}` : 'Checkpoints', table(['step', 'size', 'written', 'state'], list.map((c) => {
    const state = el('span', {class: c.valid ? 'good' : 'bad', text: c.valid ? (report.verified ? 'valid (every byte checked)' : 'valid (sizes checked)') : 'invalid: ' + c.problem});
    const best = run.status.best_global_step === c.step ? ', best' : '';
    return [number(c.step) + best, bytes(c.bytes), clock(c.created), state];
  }), {numbers: [0, 1], stack: true}));
}

function bars(parent, title, entries) {
  const figure = el('figure', {}, el('figcaption', {}, el('h3', {text: title})));
  parent.append(figure);
  drawers.push(() => {
    figure.querySelectorAll('svg').forEach((old) => old.remove());
    const width = Math.max(260, figure.clientWidth - 20), height = 170, left = 40, bottom = 24;
    const most = Math.max(1, ...entries.map((e) => e.count));
    const svg = shape('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title});
    const fy = (v) => height - bottom - v / most * (height - bottom - 8);
    for (const y of linearTicks(0, most, 4, true)) {
      svg.append(shape('line', {class: 'grid', x1: left, x2: width - 8, y1: fy(y), y2: fy(y)}));
      svg.append(shape('text', {x: left - 6, y: fy(y) + 4, 'text-anchor': 'end'}, tickText(y)));
    }
    const step = Math.min(120, (width - left - 8) / entries.length);
    entries.forEach((e, i) => {
      const bar = shape('rect', {class: 'bar', x: left + i * step + 1, y: fy(e.count), width: Math.max(1, step - 2), height: height - bottom - fy(e.count), style: 'fill:var(--c0)'});
      bar.append(shape('title', {}, `${e.name}: ${number(e.count)}`));
      svg.append(bar);
    });
    figure.append(svg);
    const wide = Math.floor((step - 8) / 6.2);
    axisLabels(svg, height - 8, left - 20, width, entries.map((e, i) => {
      const name = e.label || e.name;
      // Names that have no room are shortened where that leaves something of them.
      return {x: left + (i + 0.5) * step, text: wide >= 5 && name.length > wide ? [...name].slice(0, wide - 1).join('') + '…' : name};
    }));
  });
}
function dataSection(parent, run) {
  const data = run.data;
  if (!data || Object.keys(data).length === 0) return;
  const node = section(parent, many ? `Data of ${run.name}` : 'Data');
  const tokens = (d) => !d.mean_length ? '–' : (d.looked_at < d.samples ? '≈ ' : '') + number(Math.round(d.mean_length * d.samples));
  const rows = Object.entries(data).map(([split, d]) => [split, number(d.samples), tokens(d), d.mean_length ? d.mean_length.toFixed(1) : '–', number(d.median_length), number(d.longest)]);
  node.append(table(['split', 'samples', 'tokens', 'mean of a sample', 'median', 'longest'], rows, {numbers: [1, 2, 3, 4, 5], stack: true}));
  const train = data.train || {};
  const charts = el('div', {class: 'charts'});
  node.append(charts);
  if (train.lengths) {
    const of = train.looked_at < train.samples ? ` of ${number(train.looked_at)} samples` : '';
    bars(charts, `Tokens a sample${of}`, train.lengths.map((count, i) => ({name: `${i * train.bin_width} to ${(i + 1) * train.bin_width - 1} tokens`, label: String(i * train.bin_width), count})).slice(0, Math.ceil((train.longest + 1) / train.bin_width)));
  }
  if (train.labels) {
    bars(charts, `Labels${train.looked_at < train.samples ? ` of ${number(train.looked_at)} samples` : ''}`, Object.entries(train.labels).map(([id, count]) => ({name: (run.label_names || {})[id] || id, count})));
  }
}

function confusion(parent, run) {
  const c = run.confusion;
  if (!c) return;
  const most = Math.max(1, ...c.counts.flat());
  const head = el('tr', {}, el('th', {text: 'true \\ predicted'}), ...c.labels.map((l) => el('th', {text: l, scope: 'col'})), ...['precision', 'recall', 'F1', 'samples'].map((h) => el('th', {text: h, class: 'n'})));
  const sums = c.labels.map((_, j) => c.counts.reduce((s, row) => s + row[j], 0));
  const body = c.counts.map((row, i) => {
    const all = row.reduce((a, b) => a + b, 0);
    const p = sums[i] ? row[i] / sums[i] : 0, r = all ? row[i] / all : 0;
    return el('tr', {}, el('th', {text: c.labels[i], scope: 'row'}),
      ...row.map((n) => el('td', {class: 'heat', text: n, style: `background:color-mix(in srgb, var(--c0) ${Math.round(n / most * 60)}%, transparent)`})),
      ...[p, r, p + r ? 2 * p * r / (p + r) : 0].map((v) => el('td', {class: 'n', text: v.toFixed(3)})), el('td', {class: 'n', text: all}));
  });
  const node = section(parent, many ? `Predictions of ${run.name}` : 'Predictions', el('p', {class: 'quiet', text: c.source}), el('div', {class: 'scroll', tabindex: 0}, el('table', {class: 'confusion'}, el('thead', {}, head), el('tbody', {}, ...body))));
  if (c.worst && c.worst.length) {
    node.append(el('h3', {text: 'First mistakes'}), table(['text', 'true', 'predicted'], c.worst.map((w) => [el('span', {class: 'sample', text: w.text}), w.label, w.predicted]), {stack: true}));
  }
}

function classScores(parent, run) {
  const c = run.class_scores;
  if (!c) return;
  section(parent, many ? `Predictions of ${run.name}` : 'Predictions', el('p', {class: 'quiet', text: c.source}),
    table(['label', 'precision', 'recall', 'F1', 'samples'], c.scores.map((s) => [s.label, ...[s.precision, s.recall, s.f1].map((v) => v.toFixed(3)), number(s.samples)]), {numbers: [1, 2, 3, 4]}));
}
// Shares between 0 and 1 as lines of points {x, y, name}; with `fair`, the line on which they are equal.
function shares(parent, title, axis, lines, fair) {
  const figure = el('figure', {}, el('figcaption', {}, el('h3', {text: title}), ...(lines.length > 1 ? [el('p', {class: 'quiet'}, ...lines.map((l, i) => el('span', {style: `color:var(--c${i});margin-right:1em`, text: `● ${l.name}`})))] : [])));
  parent.append(figure);
  drawers.push(() => {
    figure.querySelectorAll('svg').forEach((old) => old.remove());
    const width = Math.max(260, figure.clientWidth - 20), height = 230, left = 40, bottom = 26, right = 12, top = 8;
    const svg = shape('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title});
    const fx = (v) => left + v * (width - left - right), fy = (v) => height - bottom - v * (height - bottom - top);
    for (const y of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(shape('line', {class: 'grid', x1: left, x2: width - right, y1: fy(y), y2: fy(y)}));
      svg.append(shape('text', {x: left - 6, y: fy(y) + 4, 'text-anchor': 'end'}, String(y)));
    }
    if (fair) svg.append(shape('line', {class: 'axis', 'stroke-dasharray': '4 4', x1: fx(0), y1: fy(0), x2: fx(1), y2: fy(1)}));
    lines.forEach((line, i) => {
      const d = line.points.map((p, j) => `${j ? 'L' : 'M'}${fx(p.x).toFixed(1)} ${fy(p.y).toFixed(1)}`).join('');
      svg.append(shape('path', {d, fill: 'none', 'stroke-width': 1.6, style: `stroke:var(--c${i})`}));
      for (const p of line.points) {
        const mark = shape('circle', {cx: fx(p.x), cy: fy(p.y), r: 2.6, style: `fill:var(--c${i})`});
        mark.append(shape('title', {}, p.name));
        svg.append(mark);
      }
    });
    figure.append(svg);
    axisLabels(svg, height - 8, left - 20, width, [0, 0.25, 0.5, 0.75, 1].map((x) => ({x: fx(x), text: x === 0.5 ? `${axis} 0.5` : String(x)})));
  });
}
function calibration(parent, run) {
  if (!run.calibration || run.calibration.length === 0) return;
  const charts = el('div', {class: 'charts'});
  section(parent, many ? `Calibration of ${run.name}` : 'Calibration', el('p', {class: 'quiet', text: 'of the validation data: how often the model is right where it is so sure, and among the answers of which it is surest'}), charts);
  const percent = (v) => `${(100 * v).toFixed(1)} %`;
  for (const kind of run.calibration) {
    const of = `${kind.name ? kind.name + ', ' : ''}${number(kind.samples)} answers`;
    const points = (bins) => bins.map((b) => ({x: b.confidence, y: b.accuracy, name: `${number(b.samples)} answers, ${percent(b.confidence)} sure, ${percent(b.accuracy)} right`}));
    shares(charts, `Reliability: ${of}`, 'confidence', [{name: 'as it is', points: points(kind.before)}, {name: `temperature ${number(kind.temperature)}`, points: points(kind.after)}], true);
    shares(charts, `Right among the surest: ${of}`, 'share answered', [{name: 'right', points: kind.coverage.map((y, i) => ({x: (i + 1) / kind.coverage.length, y, name: `of the surest ${percent((i + 1) / kind.coverage.length)}: ${percent(y)} right`}))}], false);
  }
}
function worst(parent, run) {
  const w = run.worst;
  if (!w) return;
  const source = `${w.title}; ${number(w.samples)} samples of the ${w.source}`;
  // What a task does not have, or what could not be read, is no column.
  const columns = [['row', (e) => number(e.sample + 1)], [w.measure, (e) => number(e.score)], ['text', (e) => el('span', {class: 'lines sample', text: e.text})],
    ['true', (e) => e.label], ['predicted', (e) => el('span', {class: 'lines', text: e.predicted})]];
  const keys = [null, null, 'text', 'label', 'predicted'];
  const shown = columns.filter((_, i) => !keys[i] || w.worst.some((e) => e[keys[i]] !== ''));
  if (w.similarities) {
    const charts = el('div', {class: 'charts'});
    section(parent, many ? `Similarities of ${run.name}` : 'Similarities', charts);
    const edge = (i, n) => (2 * i / n - 1).toFixed(2);
    for (const [title, counts] of [['Cosine of texts that belong together', w.similarities.positives], ['Cosine of others', w.similarities.others]]) {
      bars(charts, title, counts.map((count, i) => ({name: `${edge(i, counts.length)} to ${edge(i + 1, counts.length)}`, label: edge(i, counts.length), count})));
    }
  }
  if (w.worst.length === 0) return;
  section(parent, many ? `Worst predictions of ${run.name}` : 'Worst predictions', el('p', {class: 'quiet', text: source}),
    table(shown.map((c) => c[0]), w.worst.map((e) => ({className: 'worst', cells: shown.map((c) => c[1](e))})), {numbers: [0, 1], stack: true}));
}

function configuration(parent, run) {
  const keys = Object.keys(run.config);
  if (keys.length === 0) return;
  const node = section(parent, many ? `Configuration of ${run.name}` : 'Configuration');
  if (run.changes.length > 0) {
    node.append(el('h3', {text: 'Changed between sessions'}), table(['session', 'from step', 'key', 'before', 'after'], run.changes.map((c) => [c.session, number(c.step), c.key, text(c.before), text(c.after)]), {numbers: [0, 1], stack: true}));
  }
  const set = keys.filter((k) => run.set_keys.includes(k));
  const rows = (names) => table(['key', 'value'], names.map((k) => [el('code', {}, ...wrappable(k)), text(run.config[k])]));
  node.append(el('h3', {text: 'Keys that the configuration sets'}), rows(set));
  node.append(el('details', {}, el('summary', {text: `All ${keys.length} keys`}), rows(keys)));
}

let drawnFor = 0;
function draw() {
  hideTip();
  drawnFor = document.documentElement.clientWidth;
  for (const drawer of drawers) drawer();
}
function build() {
  newest('made').textContent = `made ${clock(report.created)} by finetune ${report.version}`;
  const main = newest('main');
  if (many) comparison(main);
  for (const run of runs) summary(main, run);
  curves(main);
  for (const run of runs) {
    timeline(main, run);
    checkpoints(main, run);
    dataSection(main, run);
    confusion(main, run);
    classScores(main, run);
    calibration(main, run);
    worst(main, run);
    configuration(main, run);
  }
  draw();
  window.addEventListener('resize', () => { if (document.documentElement.clientWidth !== drawnFor) draw(); });
}
build();
