/* What is said of a conversation: text that hides nothing, and what a screen reader is told. */

/* Characters that hide, turn round or have no shape: those of `display.visible` on the server. */
const HIDING =
  /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;

export const visible = (text) =>
  text.replace(HIDING, (one) =>
    one === "\n" || one === "\t" ? one : `\\u{${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}}`,
  );

const TOGETHER_MS = 600; // What happens within this is one thing to say: the last answer, and that it was the last.
const SAID_CHARS = 300;
const LINES = 4; // Of many at once, the last.
const STATES = {
  running: "The agent works.",
  waiting: "The agent waits for an answer.",
  idle: "The agent is at rest.",
  needs_attention: "The thread needs attention.",
};

let lines = [];
let timer = 0;

/* Have it read out, politely and together with what is said at the same time. */
export const say = (text) => {
  lines = [...lines, text].slice(-LINES);
  clearTimeout(timer);
  timer = setTimeout(() => {
    document.getElementById("said").textContent = lines.join(" ");
    lines = [];
  }, TOGETHER_MS);
};

/* The messages of others that are whole, by their ids. */
export const finished = () =>
  new Map(
    [...document.querySelectorAll("#transcript > [data-item]:not([data-status='open'], .turn-user)")].map((item) => [
      item.id, item.querySelector("[data-text]")?.textContent ?? "",
    ]),
  );

/* Say which messages have become whole, and the state that came; words are never said as they come. */
export const announce = (known, state) => {
  for (const [id, text] of finished()) {
    if (!known.has(id) && text) say(text.length > SAID_CHARS ? `${text.slice(0, SAID_CHARS)}…` : text);
  }
  if (STATES[state]) say(STATES[state]);
};
