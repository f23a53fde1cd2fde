/* The journal of a thread as a browser reads it: a stream of events, or a page of records. Nothing of the page here. */

const SILENCE_MS = 25_000; // The server gives a sign every ten seconds, which EventSource keeps to itself.
const EVENTS = [
  "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TEXT_MESSAGE_CHUNK", "TOOL_CALL_START",
  "TOOL_CALL_RESULT", "STATE_DELTA", "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "CUSTOM",
];

/* Open a stream. `take(record)` returns false to end it; `isAlive()` is asked, and promises, when nothing comes.

   Returns `leave`, which ends it, and `ended`, a promise of whether there was a stream at all. Why it has ended a page
   tells better: it has a status. */
export const openStream = (address, { opened, take, isAlive }) => {
  const source = new EventSource(address);
  let isOpen = false;
  let last = performance.now();
  let settle;
  const ended = new Promise((done) => {
    settle = done;
  });
  const watch = setInterval(async () => {
    if (performance.now() - last >= SILENCE_MS && !(await isAlive())) leave();
  }, SILENCE_MS);
  const leave = () => {
    source.close();
    clearInterval(watch);
    settle(isOpen);
  };
  source.addEventListener("error", leave);
  source.addEventListener("open", () => {
    isOpen = true;
    opened();
  });
  for (const name of EVENTS) {
    source.addEventListener(name, (event) => {
      last = performance.now();
      if (!take(JSON.parse(event.data).rawEvent)) leave();
    });
  }
  return { leave, ended };
};

/* Read a page: its status, its records, and the code of a refusal. Status 0 when there is no answer. */
export const readPage = async (address) => {
  try {
    const answer = await fetch(address, { headers: { Accept: "application/json" }, cache: "no-store" });
    const body = await answer.json();
    return { status: answer.status, records: body.records ?? [], code: body.error?.code };
  } catch {
    return { status: 0, records: [] };
  }
};
