"use strict";
// Answers questions in a thread of its own, so that a long program neither freezes the page nor goes on after "Stop".
// The module has no imports; questions and answers are JSON, by place and length in its memory (see the crate's `abi`).
let compiled = null;
let instance = null;

const load = async () => {
    if (!compiled) {
        const response = await fetch("playground.wasm");
        if (!response.ok) throw new Error(`playground.wasm: ${response.status}`);
        compiled = await WebAssembly.compile(await response.arrayBuffer());
    }
    // made anew after a trap, which leaves its memory as it was
    if (!instance) instance = (await WebAssembly.instantiate(compiled, {})).exports;
    return instance;
};
const failed = (text) => ({ error: { field: "program", text, helps: [] } });
const read = (m) => new TextDecoder().decode(new Uint8Array(m.memory.buffer, m.reply(), m.length()));
const answer = async (question) => {
    const m = await load();
    if (question === null) return null;
    const bytes = new TextEncoder().encode(JSON.stringify(question));
    const at = m.question(bytes.length);
    if (at === 0) return failed("error[syntax]: this is too long");
    new Uint8Array(m.memory.buffer, at, bytes.length).set(bytes);
    try {
        m.ask();
        return JSON.parse(read(m));
    } catch (trap) {
        const said = read(m);
        instance = null;
        return failed(`error[internal]: ${said || trap}\nPlease report this program: it is a bug in atmesh.`);
    }
};

let last = Promise.resolve();
self.addEventListener("message", ({ data: { id, question } }) => {
    last = last.then(async () => {
        try {
            self.postMessage({ id, answer: await answer(question) });
        } catch (e) {
            self.postMessage({ id, missing: String(e) });
        }
    });
});
