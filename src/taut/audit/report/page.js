// The report works without this script: cells of the heat map are links, and panels open by them.
// It adds a choice of the number that the map shows, arrow keys on the map, and sorting of tables.
"use strict";
(() => {
  const map = document.querySelector("#map svg");
  const wide = () => matchMedia("(min-width: 64rem)").matches;

  function choose() {
    const figures = [...document.querySelectorAll("#other-maps figure")];
    const own = document.querySelector("#map figure");
    if (!figures.length || !own) return;
    const parts = (figure) => ({
      title: figure.querySelector("h3").textContent,
      says: figure.querySelector("figcaption p").textContent,
      label: figure.querySelector("svg").getAttribute("aria-label"),
      cells: [...figure.querySelectorAll("svg rect.cell")].map((cell) => [
        cell.getAttribute("class"), cell.querySelector("title").textContent]),
      scale: figure.querySelector("svg .scale").cloneNode(true),
    });
    const every = [own, ...figures].map(parts);
    const select = document.createElement("select");
    select.id = "quantity";
    every.forEach((each, i) => select.add(new Option(each.title, String(i))));
    const label = document.createElement("label");
    label.append("Show ", select);
    label.className = "choice";
    own.prepend(label);
    const cells = [...map.querySelectorAll("rect.cell")];
    select.addEventListener("change", () => {
      const each = every[Number(select.value)];
      own.querySelector("h3").textContent = each.title;
      own.querySelector("figcaption p").textContent = each.says;
      map.setAttribute("aria-label", each.label);
      cells.forEach((cell, i) => {
        cell.setAttribute("class", each.cells[i][0]);
        cell.querySelector("title").textContent = each.cells[i][1];
        cell.parentNode.setAttribute("aria-label", each.cells[i][1]);
      });
      map.querySelector(".scale").replaceWith(each.scale.cloneNode(true));
    });
  }

  function walk() {
    const links = [...map.querySelectorAll("a")];
    if (!links.length) return;
    const columns = Number(map.dataset.heads);
    const at = new Map(links.map((link) => [Number(link.dataset.cell), link]));
    const stop = (link) => links.forEach((each) =>
      each.setAttribute("tabindex", each === link ? "0" : "-1"));
    // Opening a panel takes the focus with it. Beside the map it comes back, so that arrows go on.
    const open = (link) => {
      const top = scrollY;
      location.hash = link.getAttribute("href");
      if (!wide()) return;
      scrollTo(scrollX, top);
      link.focus({ preventScroll: true });
    };
    const current = () => {
      const panel = document.querySelector(".panel:target") || document.querySelector(".panel");
      const link = panel && links.find((each) => each.getAttribute("href") === "#" + panel.id);
      links.forEach((each) => each.classList.toggle("current", each === link));
      const said = document.getElementById("shown");
      if (link && said) said.textContent = "Shown: " + link.querySelector("title").textContent;
      stop(link || links[0]);
    };
    links.forEach((link) => {
      link.setAttribute("aria-label", link.querySelector("title").textContent);
      link.addEventListener("click", (event) => {
        event.preventDefault();
        open(link);
      });
      link.addEventListener("keydown", (event) => {
        const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
        if (!(event.key in steps)) return;
        event.preventDefault();
        const step = steps[event.key];
        let cell = Number(link.dataset.cell) + step;
        const last = Math.max(...at.keys());
        while (cell >= 0 && cell <= last && !at.has(cell)) cell += step;
        const next = at.get(cell);
        if (!next) return;
        stop(next);
        next.focus();
      });
    });
    addEventListener("hashchange", current);
    addEventListener("keydown", (event) => {
      const inside = document.activeElement.closest(".panel");
      const back = map.querySelector("a.current");
      if (event.key !== "Escape" || !inside || !back) return;
      stop(back);
      back.focus();
    });
    current();
  }

  function sort(table) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const value = (row, i) => {
      const text = row.cells[i].textContent.trim();
      const number = Number(text.replace(/[,%]/g, ""));
      return text === "–" ? NaN : Number.isNaN(number) ? text : number;
    };
    heads.forEach((head, i) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        const rows = [...body.rows].map((row) => [value(row, i), row]);
        const rank = (a, b) => (typeof a === "number" && typeof b === "number"
          ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
        rows.sort(([a], [b]) => {
          if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
          return down ? rank(b, a) : rank(a, b);
        });
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  document.documentElement.classList.add("scripted");
  if (map) {
    choose();
    walk();
  }
  document.querySelectorAll("table.sortable").forEach(sort);
})();
