/* Forms that are sent while the page stays: whatever else somebody is writing on it stays as well.

   What comes back is the page as a browser would have shown it, so that a refusal, a missing field and a success are
   told by the server alone. */

const DEFECT = 500;

const told = (form, text) => {
  const problem = document.createElement("p");
  problem.className = "problem";
  problem.setAttribute("role", "alert");
  problem.textContent = `${text} What you have written stands here; press the button once more.`;
  form.prepend(problem);
};

const forget = (form) => {
  for (const problem of form.querySelectorAll(":scope > .problem")) problem.remove();
};

/* Send a form. Returns the answer's status and page; null when there was none, and then the form says so. */
export const send = async (form, button) => {
  forget(form);
  const address = button?.getAttribute("formaction") ?? form.getAttribute("action");
  try {
    const body = new URLSearchParams(new FormData(form, button));
    const answer = await fetch(address, { method: "POST", body, headers: { Accept: "text/html" }, cache: "no-store" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.status < DEFECT) delete form.dataset.unanswered;
    else form.dataset.unanswered = "";
    if (answer.status !== 401 && !page.getElementById(form.closest("[data-guard]").id)) {
      told(form, `Not done: ${page.querySelector("h1")?.textContent ?? `the server answers ${answer.status}`}.`);
      return null;
    }
    return { status: answer.status, page };
  } catch {
    // It may have been taken. Under the same id of its request it is not taken again.
    form.dataset.unanswered = "";
    told(form, "Perhaps not sent: the server cannot be reached. Sent twice it is taken once.");
    return null;
  } finally {
    delete form.dataset.sent;
  }
};
