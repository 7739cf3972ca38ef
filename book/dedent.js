// Code that is included from inside a function stands at the page's edge.
document.querySelectorAll("pre code").forEach((code) => {
    const lines = code.textContent.split("\n").filter((line) => line.trim() !== "");
    const depth = Math.min(...lines.map((line) => line.length - line.trimStart().length));
    if (depth > 0 && depth < Infinity) {
        code.innerHTML = code.innerHTML.replace(new RegExp(`^ {${depth}}`, "gm"), "");
    }
});
