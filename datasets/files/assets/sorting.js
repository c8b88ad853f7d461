"use strict";

// The filter: what it does not match is hidden, figures and rows alike.
const form = document.querySelector(".filter");
const marked = form && [...form.elements].filter(item => item.name).map(item => `[data-${item.name}]`).join("");
function applyFilter() {
  const wanted = Object.fromEntries(new FormData(form));
  let count = 0;
  for (const item of document.querySelectorAll(marked)) {
    item.hidden = Object.entries(wanted).some(([key, value]) => value && item.dataset[key] !== value);
    if (item.hidden) for (const video of item.querySelectorAll("video")) video.pause();
    else if (item.tagName === "TR") count += 1;
  }
  form.querySelector("output").textContent = `${count} of ${document.querySelectorAll("tr" + marked).length} ${form.dataset.counted}`;
}
if (form) {
  form.hidden = false;
  form.addEventListener("change", applyFilter);
  form.addEventListener("submit", event => event.preventDefault());
  applyFilter();
}

// Sorting: numbers by value, texts by letter, what is missing last; rows that are equal keep their order.
function sortBy(header) {
  const down = header.getAttribute("aria-sort") === "ascending", sign = down ? -1 : 1;
  const body = header.closest("table").tBodies[0];
  const key = row => row.cells[header.cellIndex].dataset.value ?? row.cells[header.cellIndex].textContent.trim();
  const compare = (a, b) => {
    if (a === b) return 0;
    if (a === "" || b === "") return a === "" ? 1 : -1;
    return sign * (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b);
  };
  const rows = [...body.rows].map(row => [key(row), row]).sort((a, b) => compare(a[0], b[0]));
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows.map(([, row]) => row));
}
for (const header of document.querySelectorAll("th[data-sort]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...header.childNodes);
  button.addEventListener("click", () => sortBy(header));
  header.append(button);
}
