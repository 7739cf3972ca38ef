"use strict";
// Programs of the book run in the page: the crate is a WebAssembly module, loaded at the first click.
// Without JavaScript, or without the module, the page is complete: panels are only added to it.
(() => {
    if (typeof WebAssembly !== "object" || typeof Worker !== "function") return;

    const base = typeof path_to_root === "string" ? path_to_root : "";

    // the worker, made anew after "Stop"
    let worker = null;
    let next = 0;
    const waiting = new Map();
    const stop = () => {
        worker?.terminate();
        worker = null;
        for (const { done } of waiting.values()) done({ error: { field: "program", text: "stopped", helps: [] }, stopped: true });
        waiting.clear();
    };
    const send = (question) => new Promise((done, fail) => {
        if (!worker) {
            worker = new Worker(`${base}playground/worker.js`);
            worker.addEventListener("message", ({ data }) => {
                const asked = waiting.get(data.id);
                waiting.delete(data.id);
                if (data.missing) asked?.fail(new Error(data.missing));
                else asked?.done(data.answer);
            });
            worker.addEventListener("error", (e) => {
                for (const { fail: failed } of waiting.values()) failed(new Error(e.message ?? "the worker does not start"));
                waiting.clear();
            });
        }
        waiting.set(++next, { done, fail });
        worker.postMessage({ id: next, question });
    });
    window.atmeshPlay = { ask: send, load: () => send(null), stop };

    const make = (name, attributes = {}, ...children) => {
        const element = document.createElement(name);
        for (const [key, value] of Object.entries(attributes)) {
            if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
            else element.setAttribute(key, value);
        }
        element.append(...children);
        return element;
    };

    // a program in three parts: the hidden lines before it, the lines that are shown, and the hidden lines after it
    const parts = (code) => {
        const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
        const pieces = [];
        while (walker.nextNode()) {
            const node = walker.currentNode;
            pieces.push({ text: node.data, hidden: node.parentElement.closest(".boring") !== null });
        }
        const shown = pieces.map((p, k) => (!p.hidden && p.text.trim() !== "" ? k : -1)).filter((k) => k >= 0);
        const join = (from, to) => pieces.slice(from, to).map((p) => p.text).join("");
        if (shown.length === 0) return null;
        const [first, last] = [shown[0], shown[shown.length - 1]];
        return { before: join(0, first), source: join(first, last + 1), after: join(last + 1) };
    };

    const here = location.pathname.split("/").pop().replace(/\.html$/, "");
    // programs that only a compiler can judge
    const compiled = /\b(T|S|P|N|dim|mesh)!\s*[\[({]|\bTyped\b|\btyped::|#\[derive\(Named|\bspmd\(/;
    // pages whose programs need what the module leaves out, or the files of an example: they have no panels
    const WITHOUT_PANELS = ["big_sin", "fft", "gpu", "linalg", "llama", "numpy", "optimizers", "planning", "processes", "programs", "pytorch", "recompute", "schedules", "spectral", "strategy"];
    if (WITHOUT_PANELS.includes(here) || here.startsWith("train_")) return;
    const blocks = [...document.querySelectorAll(".content pre > code.language-rust")]
        .map((code, number) => ({ code, number, pre: code.parentElement, ...parts(code) }))
        .filter((b) => b.source !== undefined);
    blocks.forEach((block) => {
        const { code, source } = block;
        block.hidden = block.before.trim() !== "" || block.after.trim() !== "";
        block.runs = !code.classList.contains("compile_fail") && !code.classList.contains("no_run") && !compiled.test(source);
    });

    const answerOf = (panel, a) => {
        const out = [];
        const colored = (text) => window.atmeshDevices?.(text) ?? [text];
        if (a.printed) out.push(make("pre", { class: "run-printed" }, make("code", {}, ...colored(a.printed))));
        if (a.value) out.push(make("pre", { class: "run-value" }, make("code", {}, ...colored(a.value))));
        if (a.pictures?.length) {
            out.push(make("div", { class: "run-pictures" }, ...a.pictures.map((p) => make("figure", {},
                make("img", {
                    src: "data:image/svg+xml;charset=utf-8," + encodeURIComponent(p.picture),
                    alt: `which device holds which block of ${p.name}: ${p.type}`,
                }),
                make("figcaption", {}, `${p.name}: ${p.type}`)))));
        }
        if (a.error && !a.stopped) {
            out.push(make("pre", { class: "run-error" }, make("code", {}, a.error.text)));
            for (const help of a.error.helps) {
                if (help.source === null || help.source === undefined) out.push(make("p", { class: "run-help" }, help.text));
                else out.push(make("button", { type: "button", class: "run-fix", onclick: () => {
                    panel.text.value = help.source;
                    panel.run();
                } }, help.text));
            }
        }
        if (a.stopped) out.push(make("p", {}, "Stopped."));
        if (out.length === 0) out.push(make("p", {}, "It ran to its end. It prints nothing, and every assertion in it holds."));
        return out;
    };

    // the programs of which the page shows parts without their hidden lines (scripts/wholes)
    let wholes = null;
    const whole = async (block) => {
        wholes ??= fetch(`${base}playground/wholes.json`).then((r) => (r.ok ? r.json() : {})).catch(() => ({}));
        const { programs, pages } = await wholes;
        const part = block.hidden ? null : pages?.[here]?.[block.number];
        if (!part) return;
        block.hidden = true;
        const [name, from, to] = part;
        const text = programs[name];
        [block.before, block.source, block.after] = [text.slice(0, from), text.slice(from, to), text.slice(to)];
    };

    let count = 0;
    // programs that are parts of functions stand at the edge
    const dedented = (text) => {
        const lines = text.replace(/\s+$/, "").split("\n");
        const depth = Math.min(...lines.filter((l) => l.trim() !== "").map((l) => l.length - l.trimStart().length));
        return lines.map((l) => l.slice(Math.min(depth, l.length))).join("\n");
    };
    const open = async (block) => {
        if (block.panel) {
            block.panel.root.hidden = !block.panel.root.hidden;
            if (!block.panel.root.hidden) block.panel.text.focus();
            return;
        }
        block.panel = { root: { hidden: true }, text: { focus() {} } };
        await whole(block);
        const id = `run-${++count}`;
        const program = dedented(block.source);
        const text = make("textarea", { id, rows: String(Math.min(24, program.split("\n").length + 1)), spellcheck: "false", autocapitalize: "off" });
        text.value = program;
        const out = make("div", { class: "run-out", "aria-live": "polite" });
        const runButton = make("button", { type: "button", class: "run-go" }, "Run");
        const stopButton = make("button", { type: "button", hidden: "", onclick: stop }, "Stop");
        const reset = make("button", { type: "button", onclick: () => {
            text.value = program;
            panel.run();
        } }, "Reset");
        const close = make("button", { type: "button", onclick: () => {
            panel.root.hidden = true;
            block.button.focus();
        } }, "Close");
        const note = block.hidden ? make("p", { class: "run-note" }, "The hidden lines around this program run too. The eye above shows them.") : "";
        const root = make("div", { class: "run-panel", role: "group", "aria-label": "Run this program" },
            make("label", { for: id }, "Change the program, and run it with Ctrl+Enter"), text,
            make("div", { class: "run-bar" }, runButton, stopButton, reset, close), note, out);
        const panel = { root, text, run: async () => {
            runButton.disabled = true;
            stopButton.hidden = false;
            root.dataset.state = "running";
            out.replaceChildren(make("p", {}, "Running…"));
            const earlier = blocks.slice(0, blocks.indexOf(block)).filter((b) => !b.hidden && b.runs).map((b) => b.source);
            try {
                const question = { before: block.before, source: text.value + "\n", after: block.after, context: earlier };
                out.replaceChildren(...answerOf(panel, await send(question)));
            } catch (e) {
                out.replaceChildren(make("p", { class: "run-error" }, `The module of the playground does not load (${e.message}). scripts/playground builds it.`));
            }
            runButton.disabled = false;
            stopButton.hidden = true;
            root.dataset.state = "done";
        } };
        runButton.addEventListener("click", panel.run);
        text.addEventListener("keydown", (e) => {
            if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) {
                e.preventDefault();
                panel.run();
            }
            if (e.key === "Escape") close.click();
        });
        block.panel = panel;
        (block.bar ?? block.pre).after(root);
        panel.run();
    };

    // the key example: the one that is marked, or the first one that needs nothing of a native program
    const native = /\b(spmd|custom_op|custom_vjp|custom_jvp|conv_with|max_pool|avg_pool|switch|while_loop_with|top_k|rfft|jvp|hessian|jacrev|dot_product_attention|dot_product_attention_with)\(|\bConvOptions\b|\bWhileOptions\b|\boptim::(accumulate|partition|minimize|\w+_with|\w+_schedule)|\bSchedule::|\b(bincount|flatnonzero|categorical|permutation|from_shards)\(|\bMachine::|to_stablehlo|temp_dir|include_str!|concat!|ArrayView|ndarray|\bunsafe\b/;
    const key = blocks.find((b) => b.code.classList.contains("key") && b.runs)
        ?? blocks.find((b) => b.runs && !native.test(b.before) && !native.test(b.source));
    for (const block of blocks.filter((b) => b.runs)) {
        if (block === key) {
            block.button = make("button", { type: "button", class: "run-open", onclick: () => open(block) }, "Run here");
            block.bar = make("div", { class: "run-start" }, block.button, " or change it first: the crate runs in this page.");
            block.pre.after(block.bar);
            continue;
        }
        block.button = make("button", { type: "button", class: "run-small", title: "Run here", "aria-label": "Run this program here", onclick: () => open(block) }, "▶");
        let buttons = block.pre.querySelector(":scope > .buttons");
        if (!buttons) {
            buttons = make("div", { class: "buttons" });
            block.pre.prepend(buttons);
        }
        buttons.prepend(block.button);
    }
})();
