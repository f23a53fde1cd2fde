/* Runs before the page is painted: takes the chosen theme, says that scripts run. Nothing else.

   The choice is a cookie: signing out clears what a browser stores for us, and a choice of colours may stay. */
(() => {
  const root = document.documentElement;
  root.dataset.js = "";
  const chosen = /(?:^|; )theme=(light|dark)(?:;|$)/.exec(document.cookie);
  if (chosen) root.dataset.theme = chosen[1];
})();
