// On a phone a table is a list of its cells: each is told by the head of its column, which the style writes before it. The first cell is the row's title.
document.querySelectorAll(".content table").forEach((table) => {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    table.querySelectorAll("tbody tr").forEach((row) => {
        [...row.children].forEach((cell, k) => {
            if (k > 0 && heads[k] && cell.textContent.trim() !== "") cell.dataset.head = heads[k];
        });
    });
});
// A report's columns stay below one another: on a phone it scrolls sideways, other texts are wrapped.
document.querySelectorAll(".content pre > code.language-text").forEach((code) => {
    if (code.textContent.includes("bytes/device")) code.classList.add("report");
});
