"use strict";
// The page without this script is complete. With it, times are in the browser's time zone, and what has changed is
// replaced as soon as the server reports a change: the page is requested again, and each part marked data-live that
// differs is exchanged.
(() => {
  // Milliseconds between two requests for the page, more for one that takes longer to make; before a refused stream is
  // tried again; and until a stream counts as lost.
  const PAUSE = Number(document.body.dataset.pause) || 400, AGAIN = 5000, TIMEOUT = 3000;
  const language = document.documentElement.lang;
  const format = options => new Intl.DateTimeFormat(language, options);
  const clock = format({ hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const minute = format({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const exact = format({ dateStyle: "full", timeStyle: "long", hourCycle: "h23" });
  const month = format({ month: "short" });

  const words = (time, kind) => {
    const now = new Date();
    const day = `${time.getDate()} ${month.format(time)}`;
    if (kind === "day" || time.getFullYear() !== now.getFullYear()) return `${day} ${time.getFullYear()}`;
    if (time.toDateString() === now.toDateString()) return clock.format(time);
    return `${day}, ${minute.format(time)}`;
  };

  const localize = part => {
    for (const element of part.querySelectorAll("time[datetime]")) {
      const time = new Date(element.dateTime);
      if (Number.isNaN(time.getTime())) continue;
      element.textContent = words(time, element.className);
      element.title = exact.format(time);
    }
  };

  // What identifies an element on the page before and after.
  const key = element => element.id || element.getAttribute("href") || element.textContent;

  // True if a change could not be shown, because the reader has selected text in its place.
  let isPostponed = false;
  const replace = (old, fresh) => {
    localize(fresh);
    const kept = [...old.querySelectorAll("details, .scroll")].map(element => [
      element,
      [...fresh.querySelectorAll(element.tagName)].find(it => it.id && it.id === element.id),
    ]).filter(([, it]) => it);
    for (const [before, after] of kept) if (before.open) after.open = true;
    if (old.isEqualNode(fresh)) return;
    if (old instanceof HTMLSelectElement) keepChoice(old, fresh);
    const selection = document.getSelection();
    if (!selection.isCollapsed && old.contains(selection.anchorNode)) {
      isPostponed = true;
      return;
    }
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const focusable = focused
      && [fresh, ...fresh.querySelectorAll(focused.tagName)].find(it => key(it) === key(focused));
    const scrolled = kept.map(([before, after]) => [after, before.scrollLeft, before.scrollTop]);
    old.replaceWith(fresh);
    for (const [element, left, top] of scrolled) element.scrollTo(left, top);
    if (focusable) focusable.focus({ preventScroll: true });
  };

  // The reader's choice stays, also of a pool that is gone.
  const keepChoice = (old, fresh) => {
    if (old.value === fresh.value) return;
    if (![...fresh.options].some(it => it.value === old.value)) fresh.append(old.selectedOptions[0].cloneNode(true));
    fresh.value = old.value;
  };

  const say = text => {
    const status = document.getElementById("connection");
    if (status.textContent !== text) status.textContent = text;
  };

  let isBusy = false, isDue = false;
  const update = async () => {
    isDue = true;
    if (isBusy) return;
    isBusy = true;
    try {
      while (isDue) {
        isDue = false;
        const answer = await fetch(location.href, { cache: "no-store" });
        if (answer.ok) {
          const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
          document.title = fresh.title;
          for (const part of document.querySelectorAll("[data-live]")) {
            const after = fresh.getElementById(part.id);
            if (after) replace(part, document.adoptNode(after));
          }
        } else {
          say(`The page cannot be updated: the server answers ${answer.status}.`);
        }
        await new Promise(done => setTimeout(done, PAUSE));
      }
    } catch {
      // The stream reports that the server is gone.
    } finally {
      isBusy = false;
    }
  };

  // Runs from the first failure of the stream on, through the browser's attempts to connect again.
  let lost;
  const found = () => {
    clearTimeout(lost);
    lost = undefined;
  };
  const listen = () => {
    const events = new EventSource("/events");
    events.onopen = () => {
      found();
      say("Live: changes appear by themselves.");
    };
    events.addEventListener("change", update);
    events.onerror = () => {
      if (events.readyState === EventSource.CLOSED) {
        found();
        say("This page is not live: the server refused the stream, as it does if many pages are open. It reloads every 5 seconds.");
        update();
        setTimeout(listen, AGAIN);
      } else {
        lost ??= setTimeout(() => say("The server does not answer: what you see can be out of date."), TIMEOUT);
      }
    };
  };

  localize(document);
  document.addEventListener("selectionchange", () => {
    if (!isPostponed || !document.getSelection().isCollapsed) return;
    isPostponed = false;
    update();
  });
  listen();
})();
