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
            span.textContent = line;
            return span;
        }),
    );
});
