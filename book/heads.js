// A device has one colour everywhere: in pictures, in what programs print and in tables. This is the colour of a device in a picture (`color` of `src/api/display/picture.rs`), and what the filter of pictures makes of it on a dark page.
window.atmeshDevices = (() => {
    const rgb = (k) => {
        const hue = ((k * 137.508 + 210) % 360) / 60;
        const [chroma, light] = [0.4, 0.42 + 0.16 * (Math.floor(k / 3) % 3)];
        const side = chroma * (1 - Math.abs((hue % 2) - 1));
        const sector = [[chroma, side, 0], [side, chroma, 0], [0, chroma, side], [0, side, chroma], [side, 0, chroma], [chroma, 0, side]];
        return sector[Math.floor(hue)].map((c) => Math.min(1, Math.max(0, c + light - chroma / 2)));
    };
    const turned = [[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]];
    const dark = (color) => turned.map((row) => row.reduce((sum, f, i) => sum + f * (0.9 - 0.8 * color[i]), 0)).map((c) => Math.min(1, Math.max(0, c)));
    const css = (color) => `rgb(${color.map((c) => Math.floor(c * 255)).join(" ")})`;
    // the pieces of a text, in which each name of a device has its colour
    return (text) => text.split(/(\b(?:CPU|GPU) \d+)/).map((piece, k) => {
        if (k % 2 === 0) return piece;
        const span = document.createElement("span");
        const color = rgb(Number(piece.split(" ")[1]));
        span.className = "device";
        span.style.setProperty("--device", css(color));
        span.style.setProperty("--device-dark", css(dark(color)));
        span.textContent = piece;
        return span;
    });
})();
// On a phone a table is a list of its cells: each is told by the head of its column, which the style writes before it. The first cell is the row's title.
document.querySelectorAll(".content table").forEach((table) => {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    table.querySelectorAll("tbody tr").forEach((row) => {
        [...row.children].forEach((cell, k) => {
            if (k > 0 && heads[k] && cell.textContent.trim() !== "") cell.dataset.head = heads[k];
        });
    });
});
// Lines are wrapped, but for those that are read together with their neighbours: columns, boxes, and what carets point at.
document.querySelectorAll(".content pre > code.language-text").forEach((code) => {
    const lines = code.textContent.split(/(?<=\n)/);
    const carets = lines.map((line) => /^[\s|]*[\^~-]+(\s|$)/.test(line.trimEnd()) && /[\^~-]$/.test(line.trimEnd()));
    code.replaceChildren(
        ...lines.map((line, k) => {
            const span = document.createElement("span");
            const columns = /\S {2,}\S/.test(line) && !/^\s*=/.test(line);
            const source = /^\s*\d* *\|/.test(line) || carets[k] || carets[k + 1];
            span.className = columns || source || /[\u2500-\u259f]/.test(line) ? "line aligned" : "line";
            span.append(...window.atmeshDevices(line));
            return span;
        }),
    );
});
