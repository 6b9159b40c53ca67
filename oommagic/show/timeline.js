// Draws the lanes of a run and a cursor over them. All words come ready from Python and are only
// ever set as text. Nothing here needs the kernel, so a saved notebook shows it too.

const SVG = "http://www.w3.org/2000/svg";
const PAGE = 10; // moments that Page Up and Page Down jump over

function element(tag, className, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

function path(className, d) {
  const made = document.createElementNS(SVG, "path");
  made.setAttribute("class", className);
  made.setAttribute("d", d);
  return made;
}

// Indexes of readings that follow each other without a gap.
function runs(heights) {
  const found = [];
  heights.forEach((height, i) => {
    if (height === null) return;
    if (i === 0 || heights[i - 1] === null) found.push([]);
    found.at(-1).push(i);
  });
  return found;
}

function linePath(heights, moments) {
  return runs(heights)
    .map((run) => run.map((i) => `${moments[i]} ${1 - heights[i]}`))
    .map((points) => `M${points[0]}L${points.join("L")}`) // the first one twice: a lone one is a dot
    .join("");
}

function areaPath(heights, moments) {
  return runs(heights)
    .map((run) => {
      const top = run.map((i) => `${moments[i]} ${1 - heights[i]}`).join("L");
      return `M${top}L${moments[run.at(-1)]} 1L${moments[run[0]]} 1Z`;
    })
    .join("");
}

// Filled up to the lowest value of each moment, a line at the highest: what lies between shows how
// much it moved within the moment.
function plot(lane, moments) {
  const box = element("div", `oom-plot oom-${lane.kind}`);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 1 1");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  svg.append(
    path("oom-area", areaPath(lane.lows, moments)),
    path("", linePath(lane.highs, moments)),
  );
  box.append(svg);
  return box;
}

function axis(lane) {
  const box = element("div", "oom-axis");
  box.append(element("span", "", lane.ceiling), element("span", "", lane.floor));
  return box;
}

// Adds one lane's row to the grid and returns the place for its value at the cursor.
function addLane(grid, lane, moments, row) {
  const value = element("div", "oom-value");
  const parts = [element("div", "oom-lane", lane.name), axis(lane), plot(lane, moments), value];
  for (const part of parts) part.style.gridRow = row;
  grid.append(...parts);
  return value;
}

function ends(drawing) {
  const box = element("div", "oom-ends");
  box.append(element("span", "", "0 s"), element("span", "", drawing.duration));
  return box;
}

function cursor(drawing) {
  const box = element("div", "oom-cursor");
  box.style.gridRow = `1 / span ${drawing.lanes.length}`;
  box.tabIndex = 0;
  box.dataset.lmSuppressShortcuts = "true"; // arrow keys are the cursor's, not JupyterLab's
  box.setAttribute("role", "slider");
  box.setAttribute("aria-label", "moment of the run");
  box.setAttribute("aria-valuemin", 0);
  box.setAttribute("aria-valuemax", drawing.moments.length - 1);
  box.append(element("div", "oom-hand"));
  return box;
}

function nearest(moments, x) {
  let best = 0;
  moments.forEach((moment, i) => {
    if (Math.abs(moment - x) < Math.abs(moments[best] - x)) best = i;
  });
  return best;
}

function destination(key, at, last) {
  const places = {
    ArrowLeft: at - 1,
    ArrowDown: at - 1,
    ArrowRight: at + 1,
    ArrowUp: at + 1,
    PageDown: at - PAGE,
    PageUp: at + PAGE,
    Home: 0,
    End: last,
  };
  return Object.hasOwn(places, key) ? Math.min(last, Math.max(0, places[key])) : null;
}

function listen(box, moments, move) {
  let at = 0;
  const go = (to) => move((at = to));
  box.addEventListener("pointermove", (event) => {
    const frame = box.getBoundingClientRect();
    go(nearest(moments, (event.clientX - frame.left) / frame.width));
  });
  box.addEventListener("keydown", (event) => {
    const to = destination(event.key, at, moments.length - 1);
    if (to === null) return;
    event.preventDefault();
    event.stopPropagation();
    go(to);
  });
  go(0);
}

function draw(drawing) {
  const page = element("div", "oommagic");
  if (!drawing.lanes?.length) {
    page.textContent = "The run was too short for readings over time.";
    return page;
  }
  const grid = element("div", "oom-lanes oom-live");
  const reading = element("div", "oom-reading");
  const box = cursor(drawing);
  const values = drawing.lanes.map((lane, i) => addLane(grid, lane, drawing.moments, i + 1));
  grid.append(box, ends(drawing));
  page.append(reading, grid);
  listen(box, drawing.moments, (at) => {
    box.firstChild.style.left = `${100 * drawing.moments[at]}%`;
    drawing.lanes.forEach((lane, i) => (values[i].textContent = lane.texts[at]));
    reading.textContent = `${drawing.times[at]}  ${drawing.words[at]}`;
    const figures = drawing.lanes.map((lane) => `${lane.name} ${lane.texts[at]}`);
    box.setAttribute("aria-valuenow", at);
    box.setAttribute("aria-valuetext", [reading.textContent, ...figures].join(", "));
  });
  return page;
}

function render({ model, el }) {
  const show = () => el.replaceChildren(draw(model.get("drawing")));
  show();
  model.on("change:drawing", show);
  return () => model.off("change:drawing", show);
}

export default { render };
