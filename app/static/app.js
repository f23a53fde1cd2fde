/* What pages do beyond HTML: theme, copying, local times, countdowns. Every page works without it.

   One listener an event, on the document: fragments that htmx swaps in need no set-up. */
(() => {
  "use strict";

  const root = document.documentElement;

  // ---- theme

  const showTheme = () => {
    const chosen = root.dataset.theme ?? "system";
    for (const button of document.querySelectorAll("[data-theme-choice]")) {
      button.setAttribute("aria-pressed", String(button.dataset.themeChoice === chosen));
    }
  };

  const chooseTheme = (choice) => {
    if (choice === "system") delete root.dataset.theme;
    else root.dataset.theme = choice;
    const secure = location.protocol === "https:" ? "; Secure" : "";
    const age = choice === "system" ? 0 : 31_536_000;
    document.cookie = `theme=${choice}; Path=/; Max-Age=${age}; SameSite=Lax${secure}`;
    showTheme();
  };

  // ---- copying

  const say = (text) => {
    const place = document.getElementById("said");
    if (place) place.textContent = text;
  };

  const copy = async (button) => {
    const source = button.dataset.copyFrom;
    const text = source ? (document.getElementById(source)?.textContent ?? "") : (button.dataset.copy ?? "");
    try {
      await navigator.clipboard.writeText(text);
      say("Copied.");
    } catch {
      say("Copying is not possible here; select the text instead.");
    }
  };

  // ---- passwords, shown on request

  const reveal = (button) => {
    const input = document.getElementById(button.dataset.reveal);
    if (!input) return;
    const isShown = input.type === "password";
    input.type = isShown ? "text" : "password";
    button.setAttribute("aria-pressed", String(isShown));
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.themeChoice) chooseTheme(button.dataset.themeChoice);
    else if (button.dataset.reveal) reveal(button);
    else if (button.matches(".copy")) void copy(button);
  });

  // ---- times: local in words, UTC where the pointer rests

  const units = [["year", 31_536_000], ["month", 2_592_000], ["day", 86_400], ["hour", 3_600], ["minute", 60]];
  const words = new Intl.RelativeTimeFormat(document.documentElement.lang || "en", { numeric: "auto" });
  const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const clockThisYear = new Intl.DateTimeFormat(undefined, {
    month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  });
  const moment = (at, now) => (new Date(at).getFullYear() === new Date(now).getFullYear() ? clockThisYear : clock).format(at);

  const relative = (seconds) => {
    for (const [unit, size] of units) {
      if (Math.abs(seconds) >= size) return words.format(Math.round(seconds / size), unit);
    }
    return Math.abs(seconds) < 10 ? "just now" : words.format(Math.round(seconds), "second");
  };

  const showTimes = () => {
    const now = Date.now();
    for (const time of document.querySelectorAll("time[datetime]")) {
      const at = Date.parse(time.dateTime);
      if (Number.isNaN(at)) continue;
      const ago = relative((at - now) / 1000);
      const isShort = time.dataset.short !== undefined;
      time.title = `${isShort ? `${clock.format(at)}, ` : ""}${time.dateTime.replace("T", " ").replace("Z", " UTC")}`;
      if (time.dataset.shown === ago) continue;
      time.dataset.shown = ago;
      if (isShort) {
        time.textContent = ago;
        continue;
      }
      const beside = document.createElement("span");
      beside.className = "ago";
      beside.textContent = ago;
      time.replaceChildren(`${moment(at, now)} `, beside);
    }
  };

  // ---- countdowns: by the server's clock, whatever this machine believes

  const showCountdowns = () => {
    for (const element of document.querySelectorAll("[data-left]")) {
      element.dataset.born ??= String(performance.now());
      const passed = (performance.now() - Number(element.dataset.born)) / 1000;
      const left = Math.max(0, Math.ceil(Number(element.dataset.left) - passed));
      const minutes = Math.floor(left / 60);
      const text = minutes > 0 ? `${minutes} min ${left % 60} s` : `${left} s`;
      if (element.textContent !== text) element.textContent = text;
      if (left === 0 && element.dataset.over) {
        const gated = document.getElementById(element.dataset.over);
        if (gated) gated.disabled = false;
      }
    }
  };

  const show = () => {
    showTheme();
    showTimes();
    showCountdowns();
  };

  document.addEventListener("DOMContentLoaded", show);
  // What stands beside the text on a wide screen is open there, and folded above it on a phone.
  document.addEventListener("DOMContentLoaded", () => {
    if (!matchMedia("(min-width: 72rem)").matches) return;
    for (const part of document.querySelectorAll("details[data-wide]")) part.open = true;
  });
  document.addEventListener("htmx:afterSettle", show);
  // Where a newer piece was put in place without htmx (threads.js).
  document.addEventListener("atmem:changed", show);
  setInterval(showCountdowns, 1_000);
  setInterval(showTimes, 15_000);

  // ---- when a live part cannot be brought up to date

  const trouble = (text, link) => {
    const place = document.getElementById("trouble");
    if (!place || place.textContent.startsWith(text)) return;
    const notice = document.createElement("p");
    notice.className = "notice-line";
    notice.textContent = text;
    if (link) notice.append(" ", link);
    place.replaceChildren(notice);
  };

  for (const name of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(name, () => trouble("The server cannot be reached. What you see may be out of date."));
  }
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) document.getElementById("trouble")?.replaceChildren();
  });

  // ---- polls: what somebody has open stays open, what somebody writes is never swapped away

  let open = [];

  // A browser fills in a name and a password by itself; only who is at the password right now writes it.
  const isFilledIn = (field) => ["username", "current-password"].includes(field.autocomplete) && field !== document.activeElement;

  const isWrittenIn = (part) =>
    [...part.querySelectorAll("textarea, input:not([type='hidden'])")].some(
      (field) => !isFilledIn(field) && (field.value !== field.defaultValue || field.checked !== field.defaultChecked),
    );

  document.addEventListener("htmx:beforeOnLoad", (event) => {
    // What asks by itself is led elsewhere: the session has ended, or something must come first. Going there now would
    // throw away what somebody is writing, wherever on the page that is.
    const { xhr } = event.detail;
    const place = xhr.getResponseHeader("HX-Redirect");
    if (!place || !isWrittenIn(document.body)) return;
    event.preventDefault();
    const isOver = xhr.status === 401;
    const link = document.createElement("a");
    link.href = isOver ? "/login" : place;
    link.target = "_blank";
    link.rel = "noopener";
    link.textContent = isOver ? "Sign in in a new tab" : "Open it in a new tab";
    trouble(
      isOver
        ? "You have been signed out. What you are writing is kept on this page: sign in, then go on here."
        : "Another page wants something of you first. What you are writing is kept here: do that, then go on here.",
      link,
    );
  });

  const notice = (element) => (element.matches("[data-guard]") ? element.querySelector("[data-changed]") : null);

  document.addEventListener("htmx:beforeRequest", (event) => {
    // The new state is known to be there; asking on would only fill the audit log.
    if (notice(event.detail.elt)?.hidden === false) event.preventDefault();
  });

  document.addEventListener("htmx:beforeSwap", (event) => {
    const part = event.detail.target;
    const changed = notice(part);
    if (!changed || !event.detail.shouldSwap) return;
    if (isWrittenIn(part)) {
      event.detail.shouldSwap = false;
      changed.hidden = false;
    } else {
      open = [...part.querySelectorAll("details[id][open]")].map((each) => each.id);
    }
  });

  document.addEventListener("htmx:afterSwap", (event) => {
    // What was just done was true of the state that stood here then.
    const note = document.getElementById("note");
    if (note && event.detail.target.matches("[data-guard]")) {
      if (note.contains(document.activeElement)) document.getElementById("content").focus();
      note.remove();
    }
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    open = [];
  });

  document.addEventListener("htmx:afterRequest", (event) => {
    // A poll that works again says that the trouble is over.
    const isPoll = event.detail.elt.getAttribute("hx-trigger")?.startsWith("every");
    if (isPoll && event.detail.successful) document.getElementById("trouble")?.replaceChildren();
  });

  // ---- forms: sent once, however often the button is pressed

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent !== undefined) event.preventDefault();
    form.dataset.sent = "";
  });
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  });

  // ---- keyboard: "/" goes to the search, as people expect

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const search = document.querySelector("[type='search']");
    if (!search) return;
    event.preventDefault();
    search.focus();
  });
})();
