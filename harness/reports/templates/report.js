"use strict";

// Everything here is an addition: without scripts the page reads the same, unsorted.
// Words a reader sees are in the page's <template> elements.

const THEME_KEY = "harness-theme";

function storedTheme() {
  try {
    return localStorage.getItem(THEME_KEY) || "auto";
  } catch {
    return "auto"; // sandboxed frames have no storage
  }
}

function applyTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function copyOf(name) {
  return document.getElementById(name).content.firstElementChild.cloneNode(true);
}

function addThemeSwitch() {
  const tools = copyOf("theme-tools");
  for (const input of tools.querySelectorAll("input")) {
    input.checked = input.value === storedTheme();
    input.addEventListener("change", () => {
      applyTheme(input.value);
      try {
        localStorage.setItem(THEME_KEY, input.value);
      } catch {
        // the choice lasts as long as the page
      }
    });
  }
  document.querySelector("header").prepend(tools);
}

// --- tables

const textOf = (cell) => cell.textContent.trim();

function compareCells(a, b, sign) {
  const missing = (cell) => !cell || ["", "–"].includes(textOf(cell));
  if (missing(a) || missing(b)) return missing(a) - missing(b);
  if (a.dataset.v !== undefined && b.dataset.v !== undefined) return sign * (a.dataset.v - b.dataset.v);
  if (a.dataset.v !== undefined || b.dataset.v !== undefined) return a.dataset.v === undefined ? 1 : -1;
  return sign * textOf(a).localeCompare(textOf(b), "en", { numeric: true });
}

function makeSortable(table) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    const first = header.classList.contains("n") ? "descending" : "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    button.addEventListener("click", () => {
      const now = header.getAttribute("aria-sort");
      const next = now === null ? first : now === first ? second : null;
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      if (next) header.setAttribute("aria-sort", next);
      const sign = next === "descending" ? -1 : 1;
      const rows = next ? original.toSorted((a, b) => compareCells(a.cells[column], b.cells[column], sign)) : original;
      body.append(...rows);
      table.classList.toggle("sorted", next !== null);
    });
  });
}

const plain = (text) => text.toLowerCase().replaceAll("\u00a0", " ");

function addFilter(table, tools) {
  const [label, output] = [tools.querySelector("label"), tools.querySelector("output")];
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 6) {
    label.remove();
    output.remove();
    return;
  }
  label.querySelector("input").addEventListener("input", (event) => {
    const words = plain(event.target.value).match(/"[^"]+"|[^"\s]+/g) ?? [];
    for (const row of rows) {
      const text = plain([...row.cells].map(textOf).join(" "));
      row.hidden = !words.every((word) => text.includes(word.replaceAll('"', "")));
    }
    const shown = rows.filter((row) => !row.hidden).length;
    output.textContent = words.length ? output.dataset.words.replace("{shown}", shown).replace("{all}", rows.length) : "";
  });
}

// A spreadsheet runs a cell that starts like a formula; an apostrophe makes it text. Plain numbers stay numbers.
function csvField(text) {
  const formula = /^[=+\-@\t\r]/.test(text) && !/^[+-]?[\d.,]+ ?(%|x|[a-zA-Z]{1,3})?$/.test(text);
  return `"${(formula ? `'${text}` : text).replaceAll('"', '""')}"`;
}

function csvOf(table) {
  const rows = [...table.rows].filter((row) => !row.hidden);
  return rows.map((row) => [...row.cells].map((cell) => csvField(textOf(cell))).join(",")).join("\r\n") + "\r\n";
}

function download(table) {
  const name = `${document.title} ${table.getAttribute("aria-label")}`.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 100);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(["\ufeff", csvOf(table)], { type: "text/csv;charset=utf-8" }));
  link.download = `${name.replace(/^-+|-+$/g, "")}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function addTableTools(table) {
  const tools = copyOf("table-tools");
  if (table.tBodies[0].rows.length > 1) makeSortable(table);
  addFilter(table, tools);
  tools.querySelector("button").addEventListener("click", () => download(table));
  table.closest(".table").prepend(tools);
}

// --- drawings: the value under the pointer, or of the mark that the arrow keys reach

function addTips(plot) {
  const marks = [...plot.querySelectorAll(".point")].map((mark) => {
    const title = mark.querySelector("title");
    const text = title.textContent;
    title.remove(); // or the browser shows a second tip
    return { mark, text };
  });
  if (!marks.length) return;
  const tip = copyOf("plot-tools");
  const figure = plot.closest("figure");
  figure.append(tip);
  let current = -1;

  const hide = () => {
    if (current >= 0) marks[current].mark.classList.remove("current");
    current = -1;
    tip.textContent = "";
  };
  const show = (index) => {
    if (index === current) return;
    hide();
    current = index;
    marks[index].mark.classList.add("current");
    tip.textContent = marks[index].text;
    const [box, frame] = [marks[index].mark.getBoundingClientRect(), figure.getBoundingClientRect()];
    const middle = box.left + box.width / 2 - frame.left;
    const furthest = Math.max(0, frame.width - tip.offsetWidth);
    tip.style.left = `${Math.min(furthest, Math.max(0, middle - tip.offsetWidth / 2))}px`;
    tip.style.top = `${box.top - frame.top - tip.offsetHeight - 6}px`;
  };
  const nearest = (event) => {
    const distances = marks.map(({ mark }) => {
      const box = mark.getBoundingClientRect();
      const outside = (low, at, high) => Math.max(low - at, 0, at - high);
      return Math.hypot(outside(box.left, event.clientX, box.right), outside(box.top, event.clientY, box.bottom));
    });
    const least = Math.min(...distances);
    return least < 24 ? distances.indexOf(least) : -1;
  };

  plot.addEventListener("pointermove", (event) => {
    const index = nearest(event);
    if (index < 0) hide();
    else show(index);
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step) return;
    event.preventDefault();
    show(current < 0 ? (step > 0 ? 0 : marks.length - 1) : (current + step + marks.length) % marks.length);
  });
  plot.setAttribute("tabindex", "0");
  plot.querySelector("desc").append(` ${tip.dataset.words}`);
}

// --- contents: where the reader is

function followSections() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const nav = document.querySelector("nav");
  const visible = new Set();
  const mark = () => {
    const current = [...links.keys()].find((name) => visible.has(name));
    if (current === undefined) return;
    for (const [name, link] of links) {
      if (name !== current) link.removeAttribute("aria-current");
      else if (!link.hasAttribute("aria-current")) {
        link.setAttribute("aria-current", "location");
        const middle = link.offsetLeft - nav.clientWidth / 2 + link.offsetWidth / 2;
        nav.scrollTo({ left: middle, top: link.offsetTop - nav.clientHeight / 2 });
      }
    }
  };
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) visible[isIntersecting ? "add" : "delete"](target.id);
      mark();
    },
    { rootMargin: "-10% 0px -60% 0px" },
  );
  document.querySelectorAll("main section").forEach((section) => observer.observe(section));
}

applyTheme(storedTheme());
document.addEventListener("DOMContentLoaded", () => {
  addThemeSwitch();
  document.querySelectorAll(".table table").forEach(addTableTools);
  document.querySelectorAll("svg.plot").forEach(addTips);
  followSections();
});
