"use strict";
// The playground's page, over the worker of `run.js`.
(() => {
    const FIELDS = ["mesh", "operands", "program", "target"];
    const MOST_DEVICES_LOG = 16;
    const presets = window.playgroundPresets;
    const root = document.getElementById("play-ground");
    if (!root || !window.atmeshPlay) return;
    const fallback = [...root.children];
    // A link to `#preset-…` asks for a program. Without these ids the browser does not scroll to the list, which is below the playground.
    document.querySelectorAll('a[id^="preset-"]').forEach((link) => link.removeAttribute("id"));

    const make = (name, attributes = {}, ...children) => {
        const element = document.createElement(name);
        for (const [key, value] of Object.entries(attributes)) {
            if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
            else element.setAttribute(key, value);
        }
        element.append(...children);
        return element;
    };

    const units = (bytes) => {
        let [n, k] = [bytes, 0];
        for (; n >= 1000 && k < 5; k++) n /= 1000;
        return `${k === 0 ? n : n.toPrecision(3)} ${["B", "kB", "MB", "GB", "TB", "PB"][k]}`;
    };

    // the module runs in the worker of `run.js`
    const load = () => window.atmeshPlay.load();
    // a text that makes its own arrays is a whole program, such as one of a chapter
    const isProgram = (text) => /\bfn main\b|println!|\b(Mesh|Array|Key)::|\bassert/.test(text);
    const ask = (question) => window.atmeshPlay.ask(isProgram(question.program) ? { source: question.program + "\n" } : question);

    const inputs = {};
    let out, run, slider, devices;

    const state = () => Object.fromEntries(FIELDS.map((f) => [f, inputs[f].value]));
    const link = () => "#" + new URLSearchParams({ ...state(), run: run.checked ? "1" : "0" });
    // name, size and what is behind it: auto or nothing
    const axes = () => inputs.mesh.value.split(",").map((part) => /^([^=:]*)[=:]\s*(\d*)(.*)$/.exec(part)).filter((p) => p).map((p) => p.slice(1));

    const picture = (svg, alt) => make("img", { src: "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg), alt });
    const figure = (value) => {
        const caption = make("figcaption", {}, `${value.name}: ${value.type} (${units(value.bytes_per_device)} per device)`);
        const drawn = value.picture ? [picture(value.picture, `which device holds which block of ${value.name}: ${value.type}`)] : [];
        return make("figure", {}, ...drawn, caption);
    };
    const table = (heads, rows) => make("div", { class: "table-wrapper" }, make("table", {},
        make("thead", {}, make("tr", {}, ...heads.map((h) => make("th", {}, h)))),
        make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, k) => make("td", { "data-head": heads[k] }, cell)))))));
    const folded = (title, ...inside) => make("details", {}, make("summary", {}, title), ...inside);

    const error = (e) => {
        const parts = [make("pre", { class: "play-error" }, e.text)];
        for (const help of e.helps) {
            if (help.source === null) parts.push(make("p", {}, help.text));
            else parts.push(make("div", {}, make("button", { type: "button", class: "play-help", onclick: () => {
                inputs[e.field].value = help.source;
                answer();
            } }, help.text)));
        }
        return parts;
    };
    const result = (a) => {
        const parts = [make("p", { class: "play-type" }, make("strong", {}, a.result.type))];
        parts.push(make("div", { class: "play-pictures" }, ...a.operands.map(figure), figure(a.result)));
        if (a.collectives.length === 0) parts.push(make("p", {}, "Nothing is communicated."));
        else parts.push(table(["collective", "axes", "bytes per device", "total bytes", "times", "operation", "reason"], a.collectives.map((c) => {
            const about = c.exact ? "" : "≈ ";
            return [c.kind, c.axes, about + units(c.bytes), about + units(c.total), String(c.times), c.operation, c.reason];
        })));
        parts.push(make("p", {}, `Peak memory: ${units(a.peak_bytes)} per device, on ${a.devices.toLocaleString("en")} devices.`));
        if (a.values) parts.push(table(["device", "part", "holds"], a.values.map((v) => [make("span", {}, ...window.atmeshDevices(v.device)), v.part, make("code", {}, v.data)])));
        if (a.values_error) parts.push(make("p", {}, `Not run: ${a.values_error}.`));
        if (a.moves) parts.push(folded("Data movement", picture(a.moves, "the data of each device, in the colour of the device from which it came")));
        parts.push(folded("The typed program", make("pre", {}, a.program)), folded("The program of each device", make("pre", {}, a.spmd)));
        return parts;
    };

    // what a whole program prints, and its placed arrays
    const printed = (a) => {
        const text = [a.printed, a.value].filter((t) => t).join("\n");
        const drawn = (a.pictures ?? []).map((p) => make("figure", {},
            picture(p.picture, `which device holds which block of ${p.name}: ${p.type}`), make("figcaption", {}, `${p.name}: ${p.type}`)));
        const parts = [make("pre", { class: "play-printed" }, ...window.atmeshDevices(text || "It ran to its end, and printed nothing."))];
        if (drawn.length > 0) parts.push(make("div", { class: "play-pictures" }, ...drawn));
        return parts;
    };

    let asked = 0;
    const answer = async () => {
        const number = ++asked;
        history.replaceState(null, "", link());
        const sizes = axes().map((a) => Number(a[1]));
        const product = sizes.reduce((n, s) => n * s, 1);
        if (Number.isFinite(product) && product > 0) {
            slider.value = Math.log2(product);
            devices.textContent = `${product.toLocaleString("en")} devices`;
        }
        const a = await ask({ ...state(), run: run.checked });
        if (number !== asked) return;
        const whole = isProgram(inputs.program.value);
        for (const f of ["mesh", "operands", "target"]) inputs[f].closest("div").classList.toggle("play-unused", whole);
        if (whole) out.replaceChildren(...(a.error && !a.printed ? [] : printed(a)), ...(a.error ? error(a.error) : []));
        else out.replaceChildren(...(a.error ? error(a.error) : result(a)));
        root.dataset.answer = String(number);
    };

    const slide = () => {
        const list = axes();
        if (list.length === 0) return;
        const others = list.slice(1).reduce((n, a) => n * Number(a[1]), 1);
        list[0][1] = String(Math.max(1, Math.round(2 ** Number(slider.value) / others)));
        inputs.mesh.value = list.map(([name, size, kind]) => `${name.trim()}=${size}${kind.trimEnd()}`).join(", ");
        answer();
    };

    const field = (name, label, element) => {
        inputs[name] = element;
        element.id = `play-${name}`;
        element.spellcheck = false;
        element.addEventListener("input", answer);
        return make("div", {}, make("label", { for: element.id }, label), element);
    };
    const begin = async (values) => {
        root.replaceChildren(make("p", {}, "Loading…"));
        try {
            await load();
        } catch (e) {
            root.replaceChildren(...fallback);
            fallback.forEach((f) => { f.hidden = false; });
            root.dataset.failed = String(e);
            return;
        }
        run = make("input", { type: "checkbox", id: "play-run", onchange: answer });
        slider = make("input", { type: "range", id: "play-devices", min: "0", max: String(MOST_DEVICES_LOG), step: "1", oninput: slide });
        devices = make("span", {});
        out = make("div", { id: "play-out", "aria-live": "polite" });
        root.replaceChildren(
            make("div", { class: "play-row" },
                field("mesh", "Mesh", make("input", { type: "text" })),
                make("div", {}, make("label", { for: "play-devices" }, "Devices: ", devices), slider)),
            field("operands", "Operands", make("textarea", { rows: "3" })),
            field("program", "Program", make("textarea", { rows: "4" })),
            make("div", { class: "play-row" },
                field("target", "Target (the sharding of the result; may be empty)", make("input", { type: "text" })),
                make("div", {}, make("label", {}, run, " run it, and show the block of each device"),
                    make("button", { type: "button", onclick: () => navigator.clipboard.writeText(location.href) }, "Copy the link to this"))),
            out);
        set(values);
    };
    const set = (values) => {
        for (const f of FIELDS) inputs[f].value = values[f] ?? "";
        run.checked = values.run !== "0";
        return answer();
    };

    // what the address asks for: a preset, or fields
    const wanted = () => {
        const hash = location.hash.slice(1);
        if (hash.startsWith("preset-")) return presets[hash.slice("preset-".length)];
        const values = Object.fromEntries(new URLSearchParams(hash));
        return "program" in values ? values : null;
    };
    const show = () => {
        const values = wanted();
        if (!values) return;
        if (out) set(values);
        else begin(values);
        root.scrollIntoView();
    };
    window.addEventListener("hashchange", show);
    fallback.forEach((f) => { f.hidden = true; });
    root.append(make("button", { type: "button", id: "play-begin", onclick: () => begin(presets.first) }, "Load the playground (1.5 MB)"));
    show();
})();
