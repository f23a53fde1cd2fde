/* Putting a newer piece of a page in the place of an older one: what stays the same stays the same element.

   So the focus, a selection, what is open and what somebody has typed stay as they are. Elements are the same by their
   id; those without one by their place. */

export const FIELDS = "textarea, select, input:not([type='hidden'])";

const isWritten = (field) => {
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (!field.matches("select")) return field.value !== field.defaultValue;
  const isChosen = [...field.options].some((option) => option.defaultSelected);
  return isChosen ? !field.selectedOptions[0]?.defaultSelected : field.selectedIndex > 0;
};

const isWrittenIn = (element) =>
  [...element.querySelectorAll(FIELDS)].some((field) => isWritten(field) || field === document.activeElement);

// Set by the reader or by other scripts, and not by the server. A form without an answer keeps the id of its request.
const THEIRS = {
  open: "details", type: "input", "aria-pressed": ".reveal", "data-sent": "form", "data-unanswered": "form",
  value: "form[data-unanswered] > [name='request_id']",
};
const isTheirs = (element, name) => THEIRS[name] !== undefined && element.matches(THEIRS[name]);

const morphAttributes = (element, newer) => {
  for (const { name } of [...element.attributes]) {
    if (!newer.hasAttribute(name) && !isTheirs(element, name)) element.removeAttribute(name);
  }
  for (const { name, value } of newer.attributes) {
    if (element.getAttribute(name) !== value && !isTheirs(element, name)) element.setAttribute(name, value);
  }
};

// Never as properties: a form has its fields there, whatever they are called.
const attribute = (node, name) => node.getAttribute?.(name) ?? "";
// What stops or begins to ask is another one: htmx would have it ask on, and take its target from around it.
const isAsking = (node) => attribute(node, "hx-get") !== "";
const isSame = (node, newer) =>
  node.nodeName === newer.nodeName &&
  isAsking(node) === isAsking(newer) &&
  ["id", "name"].every((name) => attribute(node, name) === attribute(newer, name));

// What has an id is found wherever it comes next; what has none is not looked for behind what has one.
const counterpart = (from, newer) => {
  for (let node = from; node; node = node.nextSibling) {
    if (isSame(node, newer)) return node;
    if (attribute(node, "id") && !attribute(newer, "id")) return null;
  }
  return null;
};

/* Take away what the newer piece does not have, unless somebody is writing in it. */
const leave = (node) => {
  if (!(node instanceof Element) || !isWrittenIn(node)) {
    // Nobody on the page would hear what its answer is, and htmx would follow it.
    if (isAsking(node)) htmx.trigger(node, "htmx:abort");
    node.remove();
    return;
  }
  if (node.dataset.isLeft) return;
  node.dataset.isLeft = "yes";
  const note = document.createElement("p");
  note.className = "notice-line";
  note.textContent = "This is not taken any more. What you have written stays here until you leave the page.";
  node.prepend(note);
};

const morphChildren = (element, newer, morphText) => {
  let next = element.firstChild;
  const leaveUntil = (end) => {
    while (next !== end) {
      const gone = next;
      next = next.nextSibling;
      leave(gone);
    }
  };
  for (const child of [...newer.childNodes]) {
    const found = counterpart(next, child);
    if (found) {
      leaveUntil(found);
      next = found.nextSibling;
      if (found instanceof Element) morph(found, child, morphText);
      else if (found.data !== child.data) found.data = child.data;
    } else {
      element.insertBefore(document.importNode(child, true), next);
    }
  }
  leaveUntil(null);
};

/* Make `element` what `newer` is. `morphText(element, newer)` is asked about elements with `data-text`. */
export const morph = (element, newer, morphText) => {
  // app.js has made the time local.
  if (element.matches("time") && element.dateTime === newer.dateTime) return;
  morphAttributes(element, newer);
  if (newer.dataset.text !== undefined) morphText(element, newer);
  else if (!element.isEqualNode(newer)) morphChildren(element, newer, morphText);
};
