// Code that is included from inside a function stands at the page's edge. Lines that are hidden (the program around it) stay as they are.
document.querySelectorAll("pre code").forEach((code) => {
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    const nodes = [];
    while (walker.nextNode()) {
        nodes.push({ node: walker.currentNode, hidden: walker.currentNode.parentElement.closest(".boring") !== null });
    }
    const shown = nodes.map(({ node, hidden }) => (hidden ? node.data.replace(/[^\n]/g, "") : node.data)).join("");
    const lines = shown.split("\n").filter((line) => line.trim() !== "");
    const depth = Math.min(...lines.map((line) => line.length - line.trimStart().length));
    if (!(depth > 0 && depth < Infinity)) {
        return;
    }
    // blanks still to be taken from the line that a node continues
    let left = depth;
    for (const { node, hidden } of nodes) {
        let text = "";
        for (const char of node.data) {
            if (char === "\n") {
                left = depth;
                text += char;
            } else if (!hidden && left > 0 && char === " ") {
                left -= 1;
            } else {
                left = 0;
                text += char;
            }
        }
        node.data = text;
    }
});
