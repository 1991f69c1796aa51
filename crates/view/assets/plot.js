"use strict";
// Shows the values of all curves at the instant that is pointed at.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const picture = document.getElementById("picture");
  const svg = picture.querySelector("svg");
  const line = document.getElementById("line");
  const values = document.getElementById("values");
  const [left, top, width, height] = data.field;

  const bytes = (n) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let at = 0;
    for (; n >= 1000 && at < units.length - 1; at++) n /= 1024;
    return (at === 0 ? n : n.toFixed(n < 10 ? 2 : 1)) + " " + units[at];
  };
  const range = ([low, high]) => low === high ? bytes(low) : bytes(low) + " – " + bytes(high);
  const time = (ms) => {
    if (data.clock) return new Date(ms).toISOString().slice(11, 23);
    const size = Math.abs(ms);
    if (size < 1e-3) return (ms * 1e6).toFixed(0) + " ns";
    if (size < 1) return (ms * 1e3).toFixed(2) + " µs";
    if (size < 1e3) return ms.toFixed(2) + " ms";
    if (size < 18e4) return (ms / 1e3).toFixed(3) + " s";
    const s = Math.floor(ms / 1e3), two = (n) => String(n).padStart(2, "0");
    return (s >= 3600 ? Math.floor(s / 3600) + ":" + two(Math.floor(s / 60) % 60) : Math.floor(s / 60)) + ":" + two(s % 60);
  };
  // Where the curve lies at x, as lowest and highest value.
  const valueAt = (curve, x) => {
    let from = 0, to = curve.values.length;
    while (from < to) {
      const middle = (from + to) >> 1;
      if (curve.values[middle][0] <= x) from = middle + 1; else to = middle;
    }
    return from > 0 && x <= curve.to + 0.5 ? curve.values[from - 1].slice(1) : null;
  };
  const hide = () => { line.style.display = values.style.display = "none"; };

  picture.addEventListener("mouseleave", hide);
  picture.addEventListener("mousemove", (event) => {
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const x = (event.clientX - box.left) / scale, y = (event.clientY - box.top) / scale;
    if (x < left || x > left + width || y < top || y > top + height) return hide();
    const [first, last] = data.times_ms;
    values.textContent = "";
    values.append(time(first + (x - left) / width * (last - first)));
    for (const curve of data.curves) {
      const value = valueAt(curve, x + 0.5);
      if (value === null) continue;
      const sign = document.createElement("span");
      sign.style.color = curve.color;
      sign.textContent = "\n■ ";
      values.append(sign, range(value) + (curve.name ? "  " + curve.name : ""));
    }
    Object.assign(line.style, { display: "block", left: x * scale + "px", top: top * scale + "px", height: height * scale + "px" });
    values.style.display = "block";
    const right = x * scale + 14 + values.offsetWidth > box.width;
    values.style.left = (right ? x * scale - 14 - values.offsetWidth : x * scale + 14) + "px";
    values.style.top = Math.max(0, Math.min(y * scale, box.height - values.offsetHeight - 4)) + "px";
  });
})();
