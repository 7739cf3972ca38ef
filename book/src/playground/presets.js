"use strict";
// The playground's presets, one for each chapter, by the names of their links, each with the type of its result (empty if the program is an error). The object is JSON, so that tests can read it.
window.playgroundPresets = {
    "why": {
        "mesh": "X=8",
        "operands": "x: float32[1024@X,1024]",
        "program": "x.square().sum(..)",
        "target": "",
        "type": "float32[]"
    },
    "first": {
        "mesh": "X=4",
        "operands": "x: float32[8@X]",
        "program": "(&x * &x).sum(..)",
        "target": "",
        "type": "float32[]"
    },
    "meshes": {
        "mesh": "X=2, Y=2, Z=2",
        "operands": "x: int32[8@X,4@Y]",
        "program": "x.reshard(p![\"Z\", (\"X\", \"Y\")])",
        "target": "",
        "type": "int32[8@Z,4@(X,Y)]"
    },
    "shardings": {
        "mesh": "X=2, Y=4",
        "operands": "x: int32[8@X,4]",
        "program": "x.reshard(p![(\"Y\", \"X\"), _])",
        "target": "",
        "type": "int32[8@(Y,X),4]"
    },
    "data": {
        "mesh": "X=4",
        "operands": "a: float32[4,8@X]\nb: float32[4,8@X]",
        "program": "concat([&a, &b], 0).reshard(p![\"X\", _])",
        "target": "",
        "type": "float32[8@X,8]"
    },
    "reshard": {
        "mesh": "X=4",
        "operands": "x: int32[4@X,4]",
        "program": "x.reshard(p![_, \"X\"])",
        "target": "",
        "type": "int32[4,4@X]"
    },
    "collectives": {
        "mesh": "i=4",
        "operands": "x: int32[8@i]",
        "program": "shard_map(&mesh, p![\"i\"], p![\"i\"], |x| {\n    x.all_gather(\"i\", CollectiveDim::tiled(0)).psum_scatter(\"i\", CollectiveDim::tiled(0))\n}).call(&x)?",
        "target": "",
        "type": "int32[8@i]"
    },
    "costs": {
        "mesh": "X=4",
        "operands": "a: float32[64,64@X]\nb: float32[64@X,64]",
        "program": "a.dot_to(&b, p![\"X\", _])",
        "target": "",
        "type": "float32[64@X,64]"
    },
    "products": {
        "mesh": "X=2, Y=4",
        "operands": "a: float32[8,8@X]\nb: float32[8@X,8]",
        "program": "a.dot(&b)",
        "target": "",
        "type": ""
    },
    "reports": {
        "mesh": "data=2, model=4",
        "operands": "x: float32[16@data,8]\nw: float32[8,8@model]\nv: float32[8@model,4]",
        "program": "let h = x.dot(&w).relu();\ngrad(&w, |w| x.dot(&w).relu().dot_to(&v, p![\"data\", _]).square().sum(..))",
        "target": "",
        "type": "float32[8,8@model]"
    },
    "explicit": {
        "mesh": "X=2, Y=4",
        "operands": "a: float32[8@X,8]\nb: float32[8@Y,8]",
        "program": "a + b",
        "target": "",
        "type": ""
    },
    "unreduced": {
        "mesh": "X=4",
        "operands": "a: float32[4,8@X]\nb: float32[8@X,4]",
        "program": "let parts = a.dot_to(&b, p![_, _; U: \"X\"]);\n&parts + &parts",
        "target": "X, _",
        "type": "float32[4@X,4]"
    },
    "auto": {
        "mesh": "data=2 auto, model=4 auto",
        "operands": "x: float32[16,32] over [data,_]\nup: float32[32,64] over [_,model]\ndown: float32[64,32] over [model,_]",
        "program": "x.dot(&up).relu().dot(&down)",
        "target": "",
        "type": "float32[16,32], sharded as p![\"data\", _]"
    },
    "manual": {
        "mesh": "X=4",
        "operands": "x: float32[8@X]",
        "program": "shard_map(&mesh, p![\"X\"], p![], |x| {\n    x.sum(..).psum(\"X\")\n}).call(&x)?",
        "target": "",
        "type": "float32[]"
    },
    "native": {
        "mesh": "X=4",
        "operands": "x: int32[8@X]",
        "program": "shard_map(&mesh, p![\"X\"], p![\"X\"], |x| {\n    x + x.ppermute(\"X\", Permutation::ring(1))\n}).call(&x)?",
        "target": "",
        "type": "int32[8@X]"
    },
    "mixed": {
        "mesh": "data=2, model=2",
        "operands": "x: float32[4@data,8]\nw: float32[8,4@model]",
        "program": "let h = x.dot(&w);\nshard_map(&mesh, p![\"data\", \"model\"], p![\"data\", _], |h| {\n    h.sum(Dims::keep(1)).psum(\"model\")\n}).call(&h)?",
        "target": "",
        "type": "float32[4@data,1]"
    },
    "modes": {
        "mesh": "X=2, Y=4 auto",
        "operands": "x: float32[8@X,8]",
        "program": "x.constrain(p![_, \"Y\"]).exp().sum(1)",
        "target": "",
        "type": "float32[8@X]"
    },
    "gradient": {
        "mesh": "data=4",
        "operands": "x: float32[8@data,4]\nw: float32[4,2]",
        "program": "grad(&w, |w| x.dot(&w).square().sum(..))",
        "target": "",
        "type": "float32[4,2]"
    },
    "loops": {
        "mesh": "X=4 auto",
        "operands": "u: float32[16] over [X]",
        "program": "let a = 0.5 * &u + 0.25 * (u.roll(1, 0) + u.roll(-1, 0));\nlet b = 0.5 * &a + 0.25 * (a.roll(1, 0) + a.roll(-1, 0));\n0.5 * &b + 0.25 * (b.roll(1, 0) + b.roll(-1, 0))",
        "target": "",
        "type": "float32[16], sharded as p![\"X\"]"
    },
    "vmap": {
        "mesh": "data=4",
        "operands": "x: float32[8@data,4,3]\nw: float32[3,2]",
        "program": "einsum(\"bij,jk->bik\", [&x, &w])",
        "target": "",
        "type": "float32[8@data,4,2]"
    },
    "stencils": {
        "mesh": "X=4 auto",
        "operands": "u: float32[16] over [X]",
        "program": "&u + 0.25 * (u.roll(1, 0) - 2.0 * &u + u.roll(-1, 0))",
        "target": "",
        "type": "float32[16], sharded as p![\"X\"]"
    },
    "indexing": {
        "mesh": "X=4",
        "operands": "table: float32[8@X,2]\ni: int32[3]",
        "program": "table.take_to(&i, 0, p![])",
        "target": "",
        "type": "float32[3,2]"
    },
    "lines": {
        "mesh": "X=4 auto",
        "operands": "x: int32[16] over [X]",
        "program": "x.cumsum(0)",
        "target": "",
        "type": "int32[16], sharded as p![\"X\"]"
    },
    "notebook": {
        "mesh": "X=8",
        "operands": "x: float32[32@X]\nw: float32[32,4]\nb: float32[4]",
        "program": "(x.dot(&w) + &b).logistic()",
        "target": "",
        "type": "float32[4]"
    },
    "bits": {
        "mesh": "X=8",
        "operands": "x: float32[64@X]",
        "program": "x.sin().sum(..)",
        "target": "",
        "type": "float32[]"
    },
    "planning": {
        "mesh": "data=1024, model=64",
        "operands": "x: bfloat16[8192@data,2048]\nw: bfloat16[2048,8192@model]\nv: bfloat16[8192@model,2048]",
        "program": "let h = x.dot(&w).gelu();\nh.dot_to(&v, p![\"data\", _])",
        "target": "",
        "type": "bfloat16[8192@data,2048]"
    }
};
