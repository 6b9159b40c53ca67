// Draws what a step takes of a device at the batch size that a slider chooses: what can be said
// without one stands above it, in an output of its own. The sums are those of forecasts.py and the
// sentences those of plan_view.py, and tests hold them together. Words of the user's are only ever
// set as text. Nothing here needs the kernel: a saved notebook moves too.

const UNITS = [["TB", 2 ** 40], ["GB", 2 ** 30], ["MB", 2 ** 20], ["KB", 2 ** 10]];
const NEXT_UNIT_FROM = 999.5; // of the smaller unit: from there on it would be rounded to 1000
const REACH = 1.5; // how far beyond the largest batch that fits the slider goes
const LEAST_REACH = 16;
const ROOM = 1.03; // so that the longest bar does not touch the frame

let widgets = 0; // so that each can name its own parts

// As Python rounds: a tie goes to the even digit, where toFixed takes it away from zero.
function fixed(number, digits) {
  const doubled = number * 2 ** (digits + 1);
  if (doubled % 2 !== 1) return number.toFixed(digits);
  const below = Math.floor(number * 10 ** digits);
  return ((below % 2 === 0 ? below : below + 1) / 10 ** digits).toFixed(digits);
}

function threeDigits(number) {
  if (Number(fixed(number, 2)) < 10) return fixed(number, 2);
  return Number(fixed(number, 1)) < 100 ? fixed(number, 1) : fixed(number, 0);
}

export function formatBytes(count) {
  const size = Math.abs(count);
  const sign = count < 0 ? "-" : "";
  const unit = UNITS.find(([, scale]) => size * 1024 >= NEXT_UNIT_FROM * scale);
  return unit ? `${sign}${threeDigits(size / unit[1])} ${unit[0]}` : `${sign}${size} B`;
}

export function planned(rows, batch) {
  const place = rows.findIndex((row) => row.batch >= batch);
  const above = rows[place];
  if (above === undefined || above.batch === batch) return above;
  return place ? mixed(rows[place - 1], above, batch) : undefined;
}

function mixed(below, above, batch) {
  const share = (batch - below.batch) / (above.batch - below.batch);
  const mix = (low, high) => Math.floor(low + (high - low) * share + 0.5);
  return {
    batch,
    low: mix(below.low, above.low),
    peak: mix(below.peak, above.peak),
    high: mix(below.high, above.high),
    kinds: below.kinds.map((size, i) => mix(size, above.kinds[i])),
  };
}

function expectedFit(row, limit) {
  if (row.batch === limit.max_batch) return "fits";
  const isKnownNotTo = limit.max_batch !== null && row.batch > limit.max_batch;
  if (row.high <= limit.bytes && !isKnownNotTo) return "fits";
  return row.low > limit.bytes ? "does not fit" : "may not fit";
}

function trialOf(batch, limit, trials) {
  const tells = {
    fits: (trial) => trial.limit <= limit.bytes,
    "ran out": (trial) => trial.limit >= limit.bytes,
  };
  const other = (trial) => trial.limit === limit.bytes;
  return trials.find((trial) => trial.batch === batch && (tells[trial.outcome] ?? other)(trial));
}

export function fitOf(row, limit, trials) {
  const expected = expectedFit(row, limit);
  const trial = trialOf(row.batch, limit, trials);
  if (trial === undefined) return expected;
  if (trial.outcome === "fits") return "fits";
  if (trial.outcome === "ran out") return "does not fit";
  return expected === "fits" ? "may not fit" : expected;
}

export function largest(rows, limit) {
  if (limit.max_batch !== null) return Math.max(0, limit.max_batch);
  const tooLarge = rows.findIndex((row) => row.high > limit.bytes); // a larger one fits by luck
  if (tooLarge < 0) return rows.at(-1).batch;
  return tooLarge === 0 ? 0 : lastBelow(rows, tooLarge - 1, limit.bytes);
}

function lastBelow(rows, place, most) {
  let [fitting, tooLarge] = [rows[place].batch, rows[place + 1].batch];
  while (tooLarge - fitting > 1) {
    const middle = Math.floor((fitting + tooLarge) / 2);
    if (planned(rows, middle).high <= most) fitting = middle;
    else tooLarge = middle;
  }
  return fitting;
}

function rangeText(row) {
  const [low, high] = [formatBytes(row.low), formatBytes(row.high)];
  if (low === high) return low;
  const [number, unit] = low.split(" ");
  return `${high.endsWith(` ${unit}`) ? number : low} to ${high}`;
}

function figures(row) {
  const [peak, range] = [formatBytes(row.peak), rangeText(row)];
  return peak === range ? peak : `${peak} (${range})`;
}

function doubt(row, limit, fit) {
  if (fit !== "may not fit") return "";
  if (row.high > limit.bytes) return "The limit lies inside the range.";
  return "The sum fits, but a large block may find no room in one piece.";
}

export function reading(row, limit, ran, trials) {
  const origin = ran.includes(row.batch) ? "This size really ran." : "Predicted.";
  if (!limit) return `Batch ${row.batch} takes ${figures(row)}. ${origin}`;
  const fit = fitOf(row, limit, trials);
  const whole = formatBytes(limit.bytes);
  const sentence = `Batch ${row.batch} ${fit} ${limit.name}: ${figures(row)} of ${whole}.`;
  const trial = trialOf(row.batch, limit, trials);
  if (trial) return `${sentence} Tried ${trial.words}`;
  return [sentence, doubt(row, limit, fit), origin].filter(Boolean).join(" ");
}

function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

function labelled(words, control) {
  const label = element("label", "oom-control");
  label.append(element("span", "", words), control);
  return label;
}

function sliders(rows, reading) {
  const [slider, field] = [element("input"), element("input")];
  [slider.type, field.type] = ["range", "number"];
  for (const control of [slider, field]) {
    [control.min, control.max] = [rows[0].batch, rows.at(-1).batch];
    control.step = 1;
    control.setAttribute("aria-describedby", reading);
  }
  slider.setAttribute("aria-label", "batch size");
  return { slider, field };
}

function choices(limits) {
  const select = element("select");
  limits.forEach((limit, i) => {
    const option = element("option", "", `${limit.name} (${formatBytes(limit.bytes)})`);
    option.value = i;
    select.append(option);
  });
  return select;
}

function kindClass(kind) {
  return `oom-kind-${kind.kind.replaceAll(" ", "-")}`;
}

// One bar and a list with figures that says the same; the whisker below is the range.
function gauge(kinds) {
  const frame = element("div", "oom-live-gauge");
  const [above, bar] = [element("div", "oom-above"), element("div", "oom-stack")];
  const [range, mark] = [element("div", "oom-range"), element("div", "oom-limit")];
  const list = element("ul", "oom-kinds");
  above.append(element("span"));
  range.append(element("span"));
  frame.setAttribute("aria-hidden", "true");
  frame.append(above, bar, range, mark);
  const stretches = kinds.map((kind) => element("span", kindClass(kind)));
  const values = kinds.map((kind) => {
    const [item, value] = [element("li"), element("span", "oom-figure")];
    item.append(element("span", `oom-swatch ${kindClass(kind)}`), `${kind.name} `, value);
    list.append(item);
    return value;
  });
  bar.append(...stretches);
  return { frame, list, stretches, values, range: range.firstChild, above: above.firstChild, mark };
}

function percent(size, scale) {
  return `${Math.min(100, Math.max(0, (100 * size) / scale))}%`;
}

function drawGauge(parts, row, limit, scale) {
  parts.stretches.forEach((stretch, i) => (stretch.style.width = percent(row.kinds[i], scale)));
  parts.values.forEach((value, i) => (value.textContent = formatBytes(row.kinds[i])));
  parts.range.style.left = percent(row.low, scale);
  parts.range.style.width = percent(row.high - row.low, scale);
  parts.mark.hidden = parts.above.hidden = !limit;
  if (!limit) return;
  const place = percent(limit.bytes, scale);
  parts.above.textContent = `${limit.name} ${formatBytes(limit.bytes)}`;
  // The words hang on the mark by the same share of their own width, so they never leave the frame.
  parts.above.style.left = place;
  parts.above.style.transform = `translateX(-${place})`;
  parts.mark.style.left = place;
}

// How far the slider goes for a limit: sizes far beyond what fits would leave the rest no room.
function reach(rows, limit) {
  const last = rows.at(-1).batch;
  if (!limit) return last;
  const wanted = Math.max(Math.ceil(REACH * largest(rows, limit)), LEAST_REACH, 2 * rows[0].batch);
  return Math.min(last, wanted);
}

// All parts together; `chosen` hears of every move.
class Planner {
  constructor(plan, chosen) {
    const reading = `oom-planner-${++widgets}`;
    Object.assign(this, { plan, chosen, at: plan.rows[0].batch }, sliders(plan.rows, reading));
    this.page = element("div", "oommagic oom-planner");
    this.select = choices(plan.limits);
    this.jump = element("button", "oom-jump");
    this.said = element("p", "oom-verdict");
    this.gauge = gauge(plan.kinds);
    this.said.id = reading;
    this.jump.type = "button";
    this.page.append(this.controls(), this.said, this.gauge.frame, this.gauge.list);
    this.listen();
    this.turnToLimit();
  }

  get limit() {
    return this.plan.limits[Number(this.select.value)] ?? null;
  }

  controls() {
    const box = element("div", "oom-controls");
    box.append(labelled("Batch size", this.field), this.slider);
    if (this.plan.limits.length) box.append(this.jump);
    if (this.plan.limits.length > 1) box.append(labelled("Limit", this.select));
    return box;
  }

  listen() {
    const { slider, field } = this;
    slider.addEventListener("input", () => this.choose(slider.valueAsNumber));
    field.addEventListener("input", () => {
      if (field.validity.valid) this.choose(field.valueAsNumber);
    });
    // What was typed too large or not at all is put right once the typing ends.
    field.addEventListener("change", () => this.choose(field.valueAsNumber));
    this.select.addEventListener("change", () => this.turnToLimit());
    this.jump.addEventListener("click", () => this.choose(largest(this.plan.rows, this.limit)));
  }

  choose(batch) {
    this.moveTo(batch);
    this.chosen(this.at);
  }

  moveTo(batch) {
    const { rows } = this.plan;
    const wanted = Number.isFinite(batch) ? Math.round(batch) : this.at;
    this.at = Math.min(rows.at(-1).batch, Math.max(rows[0].batch, wanted));
    if (this.at > Number(this.slider.max)) this.slider.max = rows.at(-1).batch;
    this.slider.value = this.field.value = this.at;
    this.show();
  }

  turnToLimit() {
    const { rows } = this.plan;
    const most = this.limit ? largest(rows, this.limit) : 0;
    this.slider.max = Math.max(this.at, reach(rows, this.limit));
    this.jump.textContent = most ? `Largest that fits: ${most}` : "No batch fits";
    this.jump.disabled = !planned(rows, most);
    this.show();
  }

  show() {
    const { rows, ran, trials } = this.plan;
    const [row, limit] = [planned(rows, this.at), this.limit];
    const longest = planned(rows, Number(this.slider.max)).high;
    drawGauge(this.gauge, row, limit, ROOM * Math.max(1, longest, row.high, limit?.bytes ?? 0));
    const fit = limit ? fitOf(row, limit, trials) : "takes";
    this.said.textContent = reading(row, limit, ran, trials);
    this.said.dataset.fit = fit;
    this.slider.setAttribute("aria-valuetext", `${this.at}: ${fit}, ${formatBytes(row.peak)}`);
  }
}

// Plain keys are the controls', not the notebook's; its shortcuts for saving and the like stay.
function keep(event) {
  if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
}

function message(words) {
  const page = element("div", "oommagic", words);
  return { page, moveTo: () => {} };
}

function draw(plan, chosen) {
  if (!plan.rows?.length) return message(plan.headline ?? "There is no plan to show.");
  const planner = new Planner(plan, chosen);
  planner.page.addEventListener("keydown", keep);
  return planner;
}

function render({ model, el }) {
  let drawn;
  const chosen = (batch) => {
    model.set("batch", batch);
    model.save_changes();
  };
  const follow = () => drawn.moveTo(model.get("batch"));
  const show = () => {
    drawn = draw(model.get("plan"), chosen);
    el.replaceChildren(drawn.page);
    follow();
  };
  show();
  model.on("change:plan", show);
  model.on("change:batch", follow);
  return () => {
    model.off("change:plan", show);
    model.off("change:batch", follow);
  };
}

export default { render };
