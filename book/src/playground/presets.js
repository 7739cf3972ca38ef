"use strict";
// What the playground begins with: the presets of the chapters, by the names of their links.
window.playgroundPresets = {
    first: { mesh: "X=4", operands: "x: float32[8@X]", program: "(&x * &x).sum(..)", target: "" },
    explicit: { mesh: "X=2, Y=4", operands: "a: float32[8@X,8]\nb: float32[8@Y,8]", program: "a + b", target: "" },
    products: { mesh: "X=2, Y=4", operands: "a: float32[8,8@X]\nb: float32[8@X,8]", program: "a.dot(&b)", target: "" },
    unreduced: {
        mesh: "X=4",
        operands: "a: float32[4,8@X]\nb: float32[8@X,4]",
        program: "let parts = a.dot_to(&b, p![_, _; U: \"X\"]);\n&parts + &parts",
        target: "X, _",
    },
    reshard: { mesh: "X=4", operands: "x: int32[4@X,4]", program: "x.reshard(p![_, \"X\"])", target: "" },
    gradient: {
        mesh: "data=4",
        operands: "x: float32[8@data,4]\nw: float32[4,2]",
        program: "grad(&w, |w| x.dot(&w).square().sum(..))",
        target: "",
    },
    auto: {
        mesh: "data=2 auto, model=4 auto",
        operands: "x: float32[16,32] over [data,_]\nup: float32[32,64] over [_,model]\ndown: float32[64,32] over [model,_]",
        program: "x.dot(&up).relu().dot(&down)",
        target: "",
    },
    manual: {
        mesh: "X=4",
        operands: "x: float32[8@X]",
        program: "shard_map(&mesh, p![\"X\"], p![], |x| {\n    x.sum(..).psum(\"X\")\n}).call(&x)?",
        target: "",
    },
    planning: {
        mesh: "data=1024, model=64",
        operands: "x: bfloat16[8192@data,2048]\nw: bfloat16[2048,8192@model]\nv: bfloat16[8192@model,2048]",
        program: "let h = x.dot(&w).gelu();\nh.dot_to(&v, p![\"data\", _])",
        target: "",
    },
};
