"use strict";
// Shows the values under the pointer, in all plots at once: they share a time axis.
(() => {
  const plots = [...document.querySelectorAll("figure")].map((figure) => ({
    svg: figure.querySelector(".plot"),
    cursor: figure.querySelector(".cursor"),
    values: [...figure.querySelectorAll(".legend span + b")],
    when: figure.querySelector(".when"),
    data: JSON.parse(figure.querySelector("script").textContent),
  }));
  const count = Math.max(0, ...plots.map((p) => p.data.t.length));
  let at = -1;
  const show = (i) => {
    at = i;
    for (const p of plots) {
      const x = i < 0 ? "-9" : p.data.x[i] + "%";
      p.cursor.setAttribute("x1", x);
      p.cursor.setAttribute("x2", x);
      p.values.forEach((b, k) => { b.textContent = i < 0 ? "" : p.data.v[k][i]; });
      p.when.textContent = i < 0 ? "" : p.data.t[i];
    }
  };
  const nearest = (p, share) => {
    let best = 0;
    p.data.x.forEach((x, i) => { if (Math.abs(x - share) < Math.abs(p.data.x[best] - share)) best = i; });
    return best;
  };
  for (const p of plots) {
    p.svg.addEventListener("pointermove", (e) => {
      const box = p.svg.getBoundingClientRect();
      if (box.width > 0) show(nearest(p, 100 * (e.clientX - box.left) / box.width));
    });
    p.svg.addEventListener("pointerleave", () => show(-1));
    p.svg.addEventListener("blur", () => show(-1));
    p.svg.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageDown: 10, PageUp: -10 }[e.key];
      if (!step || !count) return;
      e.preventDefault();
      show(Math.min(Math.max(at + step, 0), count - 1));
    });
  }
  document.documentElement.setAttribute("data-ready", String(plots.length));
})();
