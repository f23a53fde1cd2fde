/* The live side of a thread's page. Without it the page asks every five seconds, as every live part does.

   The page holds what the server rendered at one checkpoint of the journal. This follows the journal strictly behind
   it: words of an answer are put in where they belong; whatever changes more has the fragments asked for again, which
   htmx fetches and `morph` puts in place. Nothing is lost or said twice: each text element knows up to which record it
   is written, and a record that is not newer than that is passed over.

   Rules: text is only ever text; what somebody writes is never taken away; one stream a page, none while it is hidden. */

import { openStream, readPage } from "./journal.js";
import { morph } from "./morph.js";
import { send, writtenIn } from "./sending.js";
import { announce, finished, say, visible } from "./speech.js";

const CONVERSATION = "conversation";
const ACTS = "acts";
const NEWS = "news";
const NEWS_EVERY_MS = 250;
const PAGE_EVERY_MS = 1_000;
const PAGES_A_TRY = 5; // Without a place for a stream, one is asked for again after so many pages.
const WAIT_MS = [500, 1_000, 2_000, 4_000, 8_000];
const AGAIN_MS = 2_000; // After a fragment that did not come.
const HIDDEN_MS = 30_000;
const NEAR_PX = 80;
const ENDS = new Set([401, 403, 404, 409]); // Signed out, not for you, never there, deleted.

const part = (name) => document.getElementById(name);

// ---- positions: "<epoch>-<seq>"

const parsed = (text) => {
  const [epoch, seq] = text.split("-").map(Number);
  return { epoch, seq, text };
};
const shown = () => parsed(part(CONVERSATION).dataset.checkpoint);

let at = shown(); // Behind the last record that was taken.
let wanted = 0; // The fragments should show this record at least.
let kept = []; // Beginnings and parts of messages that are newer than what the fragment shows.
const written = new WeakMap(); // Element of text -> seq of the last record in it.
let isLost = false; // What follows `at` cannot be had: a whole fragment is the new beginning.

// ---- the reader's place: along with the end, if that is where the reader is

let isAtEnd = false;
let isAsked = false;

const endPx = () => (part("transcript") ?? part(CONVERSATION)).getBoundingClientRect().bottom - innerHeight;
const look = () => {
  const end = endPx();
  isAtEnd = end <= NEAR_PX && end > -innerHeight;
};
const goAlong = () => {
  if (isAsked || !isAtEnd) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    const end = endPx() + NEAR_PX / 2;
    if (end > 0) scrollBy({ top: end, behavior: "instant" });
  });
};

/* Change the page. A field in which somebody writes stays where it is seen; else the end does, for who is there. */
const steadily = (change) => {
  const held = part(ACTS).contains(document.activeElement) ? document.activeElement : null;
  const top = held?.getBoundingClientRect().top;
  change();
  if (!held?.isConnected || top < 0 || top > innerHeight) {
    goAlong();
    return;
  }
  const moved = held.getBoundingClientRect().top - top;
  if (Math.abs(moved) >= 1) scrollBy({ top: moved, behavior: "instant" });
};

// ---- words as they come

const morphText = (seq) => (element, newer) => {
  if ((written.get(element) ?? 0) > seq) return;
  written.set(element, seq);
  if (element.textContent !== newer.textContent) element.textContent = newer.textContent;
};

const write = (record) => {
  const element = document.querySelector(`[data-text="${CSS.escape(record.data.message_id)}"]`);
  if (!element || (written.get(element) ?? shown().seq) >= record.seq) return;
  written.set(element, record.seq);
  if (record.kind === "message_part") element.append(visible(record.data.text));
  else element.textContent = "";
};

// ---- asking for the fragments

const QUIET = new Set(["message_part", "message_started", "tool_progress", "progress"]); // Change nothing to decide.
const asked = new Map(); // Name of a fragment -> when it was asked for last, and whether it is about to be.

const news = (name) => {
  const { last = -NEWS_EVERY_MS, isDue = false } = asked.get(name) ?? {};
  if (isDue || isOver) return;
  asked.set(name, { last, isDue: true });
  setTimeout(
    () => {
      asked.set(name, { last: performance.now(), isDue: false });
      const element = part(name);
      // A refusal stands there to be read: it is not replaced, but said to be old.
      if (element.hasAttribute("hx-get")) htmx.trigger(element, NEWS);
      else element.querySelector("[data-changed]").hidden = false;
    },
    Math.max(0, last + NEWS_EVERY_MS - performance.now()),
  );
};

/* Take the next record. False when it is not the next one. */
const take = (record) => {
  const position = parsed(record.position);
  if (position.epoch !== at.epoch || position.seq > at.seq + 1) return false;
  heard();
  if (position.seq <= at.seq) return true;
  at = position;
  if (record.kind === "message_started" || record.kind === "message_part") {
    kept.push(record);
    steadily(() => write(record));
  }
  if (record.kind === "message_part") return true;
  wanted = position.seq;
  news(CONVERSATION);
  if (!QUIET.has(record.kind)) news(ACTS);
  return true;
};

const begin = (position) => {
  const isOther = isLost || position.epoch !== at.epoch;
  if (isOther) leaveStream();
  if (isOther || position.seq > at.seq) {
    at = position;
    // It tells of records that were not taken, and will not be.
    news(ACTS);
  }
  if (isOther) wanted = 0;
  isLost = false;
  kept = isOther ? [] : kept.filter((record) => record.seq > position.seq);
};

const installConversation = (element, newer) => {
  const position = parsed(newer.dataset.checkpoint);
  const before = shown();
  // An answer that was overtaken by another one.
  if (position.epoch === before.epoch && position.seq < before.seq) return;
  const known = finished();
  const { state } = element.dataset;
  morph(element, newer, morphText(position.seq));
  begin(position);
  kept.forEach(write);
  announce(known, element.dataset.state === state ? null : element.dataset.state);
  if (wanted > position.seq) news(CONVERSATION);
  if (isWorthIt()) void follow();
  else leaveStream();
};

const install = (element, page) => {
  const newer = page.getElementById(element.id);
  if (!newer) return false;
  const focus = document.activeElement;
  steadily(() => {
    if (element.id === CONVERSATION) installConversation(element, newer);
    else morph(element, newer, morphText(0));
  });
  if (focus && !focus.isConnected) part("content").focus({ preventScroll: true });
  document.dispatchEvent(new Event("atmem:changed"));
  // Later, as htmx is still at the answer: it takes what it asks next from the new attributes.
  setTimeout(() => htmx.process(element));
  return true;
};

const isOurs = (element) => element.id === CONVERSATION || element.id === ACTS;
const isPolled = (element) => isOurs(element) || element.id === "claim";

// ---- what is sent from here: a new state comes back, and the page stays where it is

const STAYING = "#acts form:not(#delete)";

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (event.defaultPrevented || !form.matches(STAYING)) return;
  event.preventDefault();
  const written = writtenIn(form);
  const came = await send(form, event.submitter);
  if (came?.status === 401) end(401);
  if (!came || came.status === 401) return;
  const isTaken = came.status === 200;
  // What was written since it was sent is not part of it.
  if (isTaken && writtenIn(form) === written) form.reset();
  isAtEnd ||= isTaken;
  install(part(CONVERSATION), came.page);
  install(part(ACTS), came.page);
  part(ACTS).querySelector("[autofocus]")?.focus();
  if (isTaken) say(came.page.getElementById("note")?.textContent.trim() ?? "Done.");
});

// ---- the line that says how fresh the page is

let heardAt = Date.now();
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const heard = () => {
  heardAt = Date.now();
};

const tell = (text, link) => {
  const place = part("thread-live-note");
  if (place.textContent === text && !link) return;
  place.replaceChildren(text, ...(link ? [" ", link] : []));
};

const tellSince = () =>
  tell(`No news from the server. This page shows the state of ${clock.format(heardAt)} and goes on by itself.`);

let isOver = false;
let maySignIn = false;

const end = (status) => {
  isOver = true;
  maySignIn = status === 401;
  leaveStream();
  const link = document.createElement("a");
  link.href = maySignIn ? "/login" : "/threads";
  link.textContent = maySignIn ? "Sign in again in a new tab" : "All threads";
  if (maySignIn) Object.assign(link, { target: "_blank", rel: "noopener" });
  tell(
    maySignIn
      ? "You have been signed out, and this page stands still. What you have written stays here."
      : "This thread is not there any more, or not for you to see. This page stands still.",
    link,
  );
};

// ---- following: a stream, pages where there is no place for one, and patience where there is nothing

let isFollowing = false;
let isAsleep = false;
let leaveStream = () => {};
let wake = () => {};

const isWorthIt = () => part(CONVERSATION).dataset.live === "yes" && !isOver && !isAsleep;
const pause = (ms) =>
  new Promise((done) => {
    wake = done;
    setTimeout(done, ms);
  });
const journal = () => `${part(CONVERSATION).dataset.journal}?after=${at.text}`;

/* Follow the stream until it ends; say whether there was one. */
const stream = async () => {
  const opened = openStream(journal(), {
    opened: () => {
      heard();
      tell("");
    },
    take,
    // Records that only a page knows of: the stream is dead, whatever the browser believes.
    isAlive: async () => {
      const before = at.seq;
      return (await page()) === "good" && at.seq === before;
    },
  });
  leaveStream = opened.leave;
  const isOpen = await opened.ended;
  leaveStream = () => {};
  return isOpen;
};

/* Take what is behind the position: "good", "later" or "over". */
const page = async () => {
  const { status, records, code } = await readPage(journal());
  if (ENDS.has(status) && code !== "cursor_gap") {
    end(status);
    return "over";
  }
  isLost ||= code === "cursor_gap";
  if (isLost) news(CONVERSATION);
  if (status !== 200) return "later";
  isLost = !records.every(take);
  heard();
  tell("");
  if (wanted > shown().seq) news(CONVERSATION);
  return "good";
};

const follow = async () => {
  if (isFollowing) return;
  isFollowing = true;
  let pages = 0;
  let failures = 0;
  while (isWorthIt()) {
    const began = performance.now();
    const wasOpen = pages % PAGES_A_TRY === 0 && (await stream()) && performance.now() - began > PAGE_EVERY_MS;
    if (!isWorthIt()) break;
    const came = await page();
    if (came === "good") {
      failures = 0;
      pages = wasOpen ? 0 : pages + 1;
      if (!wasOpen) await pause(PAGE_EVERY_MS);
    } else if (came === "later") {
      // A page that is asked for anew is no fault to tell of.
      if (!isLost) tellSince();
      pages = 0;
      await pause(WAIT_MS[Math.min(failures, WAIT_MS.length - 1)]);
      failures += 1;
    }
  }
  isFollowing = false;
};

// ---- htmx, whose polls are what is left when nothing is followed

/* Hear what htmx says of what is polled before app.js does, which would guard what is written in its own way. */
const hear = (name, answer, isMeant = isPolled) =>
  document.addEventListener(
    name,
    (event) => {
      const { elt, requestConfig } = event.detail;
      if (isMeant(elt) && requestConfig.verb === "get" && answer(event, elt) === true) event.stopPropagation();
    },
    true,
  );

hear("htmx:beforeRequest", (event, element) => {
  // A claim is renewed without any record: following tells nothing of it.
  const isTold = isFollowing && isOurs(element);
  if (isOver || (isTold && event.detail.requestConfig.triggeringEvent?.type !== NEWS)) event.preventDefault();
});

hear("htmx:beforeOnLoad", (event) => {
  if (!ENDS.has(event.detail.xhr.status)) return false;
  event.preventDefault();
  end(event.detail.xhr.status);
  return true;
});

hear("htmx:beforeSwap", (event, element) => {
  const { target, xhr } = event.detail;
  if (target !== element || xhr.status !== 200) return false;
  event.detail.shouldSwap = !install(element, new DOMParser().parseFromString(xhr.responseText, "text/html"));
  return !event.detail.shouldSwap;
}, isOurs);

hear("htmx:afterRequest", (event, element) => {
  const { xhr } = event.detail;
  if (xhr.status === 200 || xhr.status === 204) {
    heard();
    tell("");
  } else if (!isOver) {
    setTimeout(() => news(element.id), AGAIN_MS);
  }
}, isOurs);

for (const name of ["htmx:sendError", "htmx:timeout"]) {
  hear(name, (event, element) => {
    if (isOurs(element)) tellSince();
    // The alert of app.js is too loud for what mends itself.
    return true;
  });
}

// ---- waking and sleeping: a browser has six connections for all its pages of one server

let sleep = 0;

document.addEventListener("visibilitychange", () => {
  clearTimeout(sleep);
  if (document.hidden) {
    sleep = setTimeout(() => {
      isAsleep = true;
      leaveStream();
    }, HIDDEN_MS);
    return;
  }
  isAsleep = false;
  if (isOver && maySignIn) void comeBack();
  else if (isWorthIt()) void follow();
  wake();
});

/* Perhaps somebody has signed in again in another tab. */
const comeBack = async () => {
  if ((await page()) !== "good") return;
  isOver = false;
  news(CONVERSATION);
  news(ACTS);
};

addEventListener("online", () => wake());
addEventListener("scroll", look, { passive: true });
addEventListener("resize", look, { passive: true });
look();
if (isWorthIt()) void follow();
