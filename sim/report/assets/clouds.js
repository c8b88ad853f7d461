"use strict";

// The cloud: turned about its middle, z up, seen in perspective.
function bytes(text) { return Uint8Array.from(atob(text), letter => letter.charCodeAt(0)); }
function metres(text) { return Float32Array.from(new Int16Array(bytes(text).buffer), value => value / 1000); }
function spread(points) {
  const middle = [0, 1, 2].map(axis => {
    const sorted = points.filter((_, index) => index % 3 === axis).sort();
    return (sorted[Math.floor(sorted.length * 0.02)] + sorted[Math.ceil(sorted.length * 0.98) - 1]) / 2;
  });
  const distances = [];
  for (let i = 0; i < points.length; i += 3) distances.push(Math.hypot(...middle.map((value, axis) => points[i + axis] - value)));
  distances.sort((a, b) => a - b);
  return [middle, distances[Math.floor(distances.length * 0.95)] || 1];
}
function showCloud(box) {
  const data = JSON.parse(box.querySelector("script").textContent), canvas = box.querySelector("canvas"), choice = box.querySelector("select");
  const scene = metres(data.points), patches = metres(data.patches), sceneColours = bytes(data.colours), patchColours = bytes(data.patchColours);
  const [middle, radius] = spread(patches), weights = data.arms.map(arm => bytes(arm.weights)), share = box.querySelector("output");
  const pen = canvas.getContext("2d");
  let turn = -0.6, tilt = 0.85, zoom = 1.35;
  function place(points, i, size) {
    const x = points[i] - middle[0], y = points[i + 1] - middle[1], z = points[i + 2] - middle[2];
    const right = x * Math.cos(turn) + y * Math.sin(turn), away = y * Math.cos(turn) - x * Math.sin(turn);
    const up = z * Math.cos(tilt) + away * Math.sin(tilt), deep = away * Math.cos(tilt) - z * Math.sin(tilt);
    const scale = size * zoom / (1 + deep / radius / 4) / radius;
    return [canvas.width / 2 + right * scale, canvas.height / 2 - up * scale, deep, scale];
  }
  function draw() {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const size = canvas.height * 0.55, arm = choice.value === "" ? -1 : Number(choice.value), marks = [];
    for (let i = 0; i < scene.length; i += 3) {
      const c = sceneColours.subarray(i, i + 3), grey = 75 + 0.3 * (c[0] + c[1] + c[2]) / 3;
      const at = place(scene, i, size);
      marks.push([at, arm < 0 ? `rgb(${c[0]},${c[1]},${c[2]})` : `rgb(${grey},${grey},${grey})`, Math.max(1.5 * ratio, at[3] * 0.009)]);
    }
    for (let i = 0; i < patches.length; i += 3) {
      const at = place(patches, i, size), c = patchColours.subarray(i, i + 3), w = arm < 0 ? 0 : weights[arm][i / 3] / 255;
      const colour = arm < 0 ? `rgb(${c[0]},${c[1]},${c[2]})` : `rgb(${150 + 105 * w},${150 - 20 * w},${150 - 130 * w})`;
      marks.push([at, colour, arm < 0 ? Math.max(3 * ratio, at[3] * 0.024) : (2 + 8 * Math.sqrt(w)) * ratio * Math.sqrt(zoom)]);
    }
    marks.sort((a, b) => b[0][2] - a[0][2]);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    for (const [[x, y, deep], colour, width] of marks) {
      if (deep < -3.6 * radius) continue;  // Behind the eye.
      pen.fillStyle = colour;
      pen.fillRect(x - width / 2, y - width / 2, width, width);
    }
    share.textContent = arm < 0 ? `${patches.length / 3} patches` : `all patches: ${(data.arms[arm].all * 100).toFixed(0)} %, the largest: ${(data.arms[arm].most * 100).toFixed(1)} %`;
  }
  function change(turned, tilted, zoomed) {
    turn += turned;
    tilt = Math.min(Math.PI / 2, Math.max(-Math.PI / 2, tilt + tilted));
    zoom = Math.min(12, Math.max(0.3, zoom * zoomed));
    draw();
  }
  canvas.addEventListener("pointerdown", event => canvas.setPointerCapture(event.pointerId));
  canvas.addEventListener("pointermove", event => { if (event.buttons) change(event.movementX / 120, event.movementY / 120, 1); });
  canvas.addEventListener("wheel", event => { event.preventDefault(); change(0, 0, Math.exp(-event.deltaY / 500)); }, { passive: false });
  canvas.addEventListener("keydown", event => {
    const moves = { ArrowLeft: [-0.1, 0, 1], ArrowRight: [0.1, 0, 1], ArrowUp: [0, -0.1, 1], ArrowDown: [0, 0.1, 1], "+": [0, 0, 1.2], "-": [0, 0, 1 / 1.2] };
    if (event.key in moves) { event.preventDefault(); change(...moves[event.key]); }
  });
  choice.addEventListener("change", draw);
  new ResizeObserver(draw).observe(canvas);
}
for (const box of document.querySelectorAll(".cloud")) {
  box.hidden = false;
  showCloud(box);
}
