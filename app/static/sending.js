/* Forms that are sent while the page stays: whatever else somebody is writing on it stays as well.

   What comes back is the page as a browser would have shown it, so that a refusal, a missing field and a success are
   told by the server alone. */

import { FIELDS } from "./morph.js";

const DEFECT = 500;

const told = (form, text) => {
  const problem = document.createElement("p");
  problem.className = "problem";
  problem.setAttribute("role", "alert");
  problem.textContent = `${text} What you have written stands here; press the button once more.`;
  form.prepend(problem);
};

const heading = (answer, page) => page.querySelector("h1")?.textContent ?? `the server answers ${answer.status}`;

const forget = (form) => {
  for (const problem of form.querySelectorAll(":scope > .problem")) problem.remove();
};

/* What somebody has written into a form, and not the server. */
export const writtenIn = (form) =>
  JSON.stringify([...form.querySelectorAll(FIELDS)].map((field) => [field.name, field.value, field.checked]));

/* Send a form. Returns the answer's status and page; null when there was none, and then the form says so. */
export const send = async (form, button) => {
  forget(form);
  // While there is no answer the form keeps the id of its request, whatever else it is brought up to date with.
  form.dataset.unanswered = "";
  // Asked now: whatever brings the page up to date meanwhile may take the form away.
  const guard = form.closest("[data-guard]").id;
  const address = button?.getAttribute("formaction") ?? form.getAttribute("action");
  try {
    const body = new URLSearchParams(new FormData(form, button));
    const answer = await fetch(address, { method: "POST", body, headers: { Accept: "text/html" }, cache: "no-store" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const isShown = page.getElementById(guard) !== null;
    // What was taken leads on to the page: where that cannot be shown it may be taken all the same.
    const isUnsure = answer.status >= DEFECT || (answer.redirected && !isShown);
    if (!isUnsure) delete form.dataset.unanswered;
    if (answer.status !== 401 && !isShown) {
      const why = heading(answer, page);
      told(form, isUnsure ? `Perhaps done: ${why}. Sent twice it is taken once.` : `Not done: ${why}.`);
      return null;
    }
    return { status: answer.status, page };
  } catch {
    told(form, "Perhaps not sent: the server cannot be reached. Sent twice it is taken once.");
    return null;
  } finally {
    delete form.dataset.sent;
  }
};
