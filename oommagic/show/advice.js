// A panel of suggestions: to read, to copy, and to measure in the kernel. All words come from
// advice_view.py and are only ever set as text. Reading and copying need no kernel: a saved
// notebook does both. Measuring does, so the panel asks for a sign of life first.

const NEEDS_KERNEL =
  "Measuring needs the kernel that ran this cell, and it has not answered yet. If it is busy, it " +
  "begins afterwards; if it is gone, run the cell again.";
const BY_HAND =
  "This page can't write to the clipboard: press Ctrl+C (⌘C) to copy the cell selected here.";
const PATIENCE_MS = 3000;
const CLASSES = { "+": "oom-new", "-": "oom-gone", "@": "oom-place" };

function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

// What stands between backticks is code, as in the static page.
function prose(words) {
  const part = (text, i) => (i % 2 ? element("code", "oom-code", text) : text);
  return words.split(/`([^`\n]+)`/).map(part);
}

function sentence(tag, className, words) {
  const made = element(tag, className);
  made.append(...prose(words));
  return made;
}

// Lines break between terms rather than in one, and begin with one.
function termParts(terms) {
  const last = terms.length - 1;
  return terms.flatMap((words, i) => [sentence("span", "", i < last ? `${words} ·` : words), " "]);
}

function fold(words, parts) {
  const folded = element("details");
  folded.append(element("summary", "", words), ...parts);
  return folded;
}

function button(words, label, act) {
  const made = element("button", "", words);
  made.type = "button";
  made.setAttribute("aria-label", label);
  made.addEventListener("click", () => {
    if (made.getAttribute("aria-disabled") !== "true") act();
  });
  return made;
}

// The signs stay, so that it can be read without colours; what is selected has none.
function diff(lines) {
  const box = element("div", "oom-diff");
  box.style.whiteSpace = "pre-wrap";
  for (const { sign, text } of lines) {
    const line = element("div", CLASSES[sign] ?? "oom-same");
    line.append(element("span", "oom-sign", `${sign} `), text);
    box.append(line);
  }
  return box;
}

function figures(heads, rows) {
  const [frame, table] = [element("div", "oom-scroll"), element("table", "oom-lines oom-trial")];
  const [head, body] = [table.createTHead().insertRow(), table.createTBody()];
  head.append(element("td"), ...heads.map((words) => scoped("col", words)));
  for (const { name, before, after } of rows) {
    const row = body.insertRow();
    const head = scoped("row", name);
    head.className = "oom-words";
    row.append(head, element("td", "", before), element("td", "", after));
  }
  frame.append(table);
  return frame;
}

function scoped(scope, words) {
  const cell = element("th", "", words);
  cell.scope = scope;
  return cell;
}

function trialParts(heads, trial) {
  const notes = element("ul", "oom-notes");
  notes.append(...trial.notes.map((note) => sentence("li", "", note)));
  return [figures(heads, trial.figures), ...(trial.notes.length ? [notes] : [])];
}

// A page that came without encryption has no clipboard of its own, and some may not write to it.
async function copied(source, place) {
  try {
    await navigator.clipboard.writeText(source);
  } catch {
    place.replaceChildren(fieldOf(source));
    place.firstChild.focus();
    place.firstChild.select();
    if (!document.execCommand("copy")) return BY_HAND;
  }
  place.replaceChildren();
  return "Copied. Paste it into a cell.";
}

function fieldOf(source) {
  const field = element("textarea", "oom-copy");
  field.readOnly = true;
  field.rows = Math.min(12, source.split("\n").length + 1);
  field.value = source;
  return field;
}

// One suggestion; `measure` is nothing where nobody can measure.
class Card {
  constructor(said, advice, measure) {
    this.number = said.number;
    this.said = said;
    this.page = element("div", "oom-suggestion");
    this.title = element("p", "oom-suggests");
    this.terms = element("p", "oom-terms");
    this.status = element("p", "oom-status");
    this.status.setAttribute("role", "status");
    [this.place, this.trial] = [element("div"), element("div")];
    this.page.append(this.title, this.terms, sentence("p", "", said.message));
    if (said.instead) this.page.append(element("p", "", said.instead));
    const changes = said.changes ? [sentence("p", "", said.changes)] : [];
    if (said.change) this.page.append(fold(said.change, [...changes, diff(said.diff)]));
    else this.page.append(...changes);
    if (said.source) this.page.append(this.actions(advice, measure));
    this.page.append(this.status, this.place, this.trial);
    this.update(said, advice);
  }

  actions(advice, measure) {
    const box = element("div", "oom-actions");
    box.append(button("Copy cell", `Copy the cell with suggestion ${this.number}`, () => this.copy()));
    if (advice.can_measure) {
      const label = `Measure suggestion ${this.number}`;
      this.measure = button("Measure", label, () => measure(this.number));
      box.append(this.measure);
    }
    return box;
  }

  async copy() {
    this.say(await copied(this.said.source, this.place));
  }

  update(said, advice) {
    this.said = said;
    this.title.replaceChildren(`${said.number}. `, ...prose(said.title), " ");
    if (said.mark) this.title.append(element("span", "oom-mark", said.mark));
    this.terms.replaceChildren(...termParts(said.terms));
    this.trial.replaceChildren(...(said.trial ? trialParts(advice.heads, said.trial) : []));
  }

  say(words) {
    if (this.words !== words) this.status.replaceChildren(...prose((this.words = words)));
  }

  allow(isFree) {
    this.measure?.setAttribute("aria-disabled", String(!isFree));
  }
}

// All suggestions; `ask` sends a message to the kernel.
class Panel {
  constructor(model) {
    this.model = model;
    this.cards = [];
    this.asked = null;
    this.hasKernel = false;
    this.page = element("div", "oommagic oom-panel oom-advice");
    this.page.addEventListener("keydown", keep);
    this.build();
    this.show();
  }

  get advice() {
    return this.model.get("advice");
  }

  get suggestions() {
    return [...(this.advice.front ?? []), ...(this.advice.behind ?? [])];
  }

  build() {
    const { advice } = this;
    this.cards = this.suggestions.map((said) => new Card(said, advice, (n) => this.measure(n)));
    const pages = this.cards.map((card) => card.page);
    const behind = pages.splice((advice.front ?? []).length);
    this.together = element("div");
    this.page.replaceChildren(element("p", "oom-title", advice.title ?? "No suggestions."), ...pages);
    if (advice.more) this.page.append(fold(advice.more, behind));
    this.page.append(this.together);
    if (advice.how_to) this.page.append(element("p", "oom-how-to", advice.how_to));
    this.showTogether();
  }

  showTogether() {
    const { heads, together } = this.advice;
    const pages = (together ?? []).map((trial) => {
      const page = element("div", "oom-suggestion");
      page.append(sentence("p", "oom-suggests", trial.headline), ...trialParts(heads, trial));
      return page;
    });
    this.together.replaceChildren(...pages);
  }

  // After a trial only figures differ: what is unfolded and where the focus stands must stay.
  followAdvice() {
    const { suggestions } = this;
    const isSame = (card, i) => card.said.title === suggestions[i].title;
    if (suggestions.length !== this.cards.length || !this.cards.every(isSame)) this.build();
    this.cards.forEach((card, i) => card.update(suggestions[i], this.advice));
    this.showTogether();
    this.followActivity();
  }

  followActivity() {
    this.asked = null;
    this.hasKernel = true;
    this.show();
  }

  hear(message) {
    if (message?.kind !== "here") return;
    this.hasKernel = true;
    this.show();
  }

  measure(number) {
    this.asked = number;
    this.model.send({ kind: "measure", number });
    this.show();
    setTimeout(() => {
      if (this.asked === null) return;
      this.hasKernel = false;
      this.show();
    }, PATIENCE_MS);
  }

  // What a saved notebook says is being measured is not any more, where nobody is there.
  get running() {
    const activity = this.model.get("activity");
    return activity.is_running && !this.hasKernel ? {} : activity;
  }

  show() {
    const { number, words, is_running } = this.running;
    for (const card of this.cards) {
      card.allow(this.asked === null && !is_running);
      // What kept another from being measured stays to be read.
      if (card.number === this.asked) card.say(this.hasKernel ? "Asked the kernel …" : NEEDS_KERNEL);
      else if (card.number === number) card.say(words);
    }
  }
}

// Plain keys are the panel's, not the notebook's; its shortcuts for saving and the like stay.
// In the field to copy from, copying is the field's.
function keep(event) {
  const isShortcut = event.ctrlKey || event.metaKey || event.altKey;
  if (!isShortcut || event.target.className === "oom-copy") event.stopPropagation();
}

function render({ model, el }) {
  const panel = new Panel(model);
  const followers = {
    "change:advice": () => panel.followAdvice(),
    "change:activity": () => panel.followActivity(),
    "msg:custom": (message) => panel.hear(message),
  };
  el.replaceChildren(panel.page);
  for (const [event, follow] of Object.entries(followers)) model.on(event, follow);
  model.send({ kind: "hello" });
  return () => {
    for (const [event, follow] of Object.entries(followers)) model.off(event, follow);
  };
}

export default { render };
