"""What a front end does with a widget of ours, done in a bare page without a kernel."""

import json
from typing import Any
from urllib.parse import quote

from samples import HOSTILE

# Its module, its style and its state; what the widget sends is kept in `sent`, and messages of
# its own in `messages`.
_RENDER = """async ([module, style, state]) => {
  window.widget = await import(module);
  document.head.append(Object.assign(document.createElement('style'), { textContent: style }));
  const listeners = new Set();
  window.sent = [];
  window.messages = [];
  window.model = {
    get: (name) => state[name],
    set: (name, value) => { state[name] = value; },
    save_changes: () => { sent.push({ ...state }); },
    send: (message) => { messages.push(message); },
    tell: (message) => { listeners.forEach((listener) => listener(message)); },
    on: (_, listener) => listeners.add(listener),
    off: (_, listener) => listeners.delete(listener),
    change: (name, value) => { state[name] = value; listeners.forEach((listener) => listener()); },
  };
  window.listeners = listeners;
  window.close_widget = widget.default.render({ model, el: document.body });
}"""


def opened_widget(
    browser: Any, widget: Any, names: tuple[str, ...], width: int, style: str = ""
) -> Any:
    """Show a widget in a page of that width, from what a notebook saves of those traits."""
    state = widget.get_state()
    page = browser.new_page(viewport={"width": width, "height": 600})
    page.set_content(f"<!doctype html><title>mine</title><body style='{style}'></body>")
    module = f"data:text/javascript,{quote(state['_esm'])}"
    saved = json.loads(json.dumps({name: state[name] for name in names}))
    page.evaluate(_RENDER, [module, state["_css"], saved])
    return page


def all_hostile(value: Any) -> Any:
    """Replace every text in a widget's state by one that tries to break out."""
    if isinstance(value, dict):
        return {key: all_hostile(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [all_hostile(entry) for entry in value]
    return HOSTILE if isinstance(value, str) else value
