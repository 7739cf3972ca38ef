//! Wrong operands are errors that name the function, the operands and the fix.

use crate::error_checks::Unquoted as _;
use atmesh::nn::{self, AttentionOptions, BatchStats, NormOptions, Rope, init};
use atmesh::prelude::*;

/// Asserts that an array carries one error of `op` that has all of these words.
#[track_caller]
fn refused(y: Array, op: &str, words: &[&str]) {
    let error = match y.ty() {
        Ok(ty) => panic!("{op} gave {ty}"),
        Err(error) => error,
    };
    assert_eq!(error.diagnostics().len(), 1, "{error}");
    assert_eq!(error.diagnostics()[0].op, op, "{error}");
    let location = error.diagnostics()[0].location.expect("a location");
    assert!(location.file().ends_with("errors.rs"), "{error}");
    let text = error.unquoted();
    assert!(words.iter().all(|w| text.contains(w)), "{words:?} in\n{text}");
}

fn ones<const N: usize>(shape: [usize; N]) -> Array {
    Array::ones(shape)
}

#[test]
fn shapes_and_element_types() {
    let ids = Array::from([0, 1]);
    refused(
        nn::embed(&ones([4, 2]), &ones([3])),
        "embed",
        &["`ids` must be integers", "astype(I32)", "float32[4,2]"],
    );
    refused(nn::embed(&Array::from(1.0f32), &ids), "embed", &["`table` has no dimensions"]);
    refused(nn::layer_norm(&ids, 1.0, 0.0), "layer_norm", &["`x` must be floats, not int32", "astype(F32)"]);
    refused(nn::layer_norm(&ones([4, 2]), ones([3]), 0.0), "layer_norm", &["`scale` has shape [3]", "[2]"]);
    refused(nn::rms_norm(&ones([2]), ones([4, 2])), "rms_norm", &["`scale`", "broadcast"]);
    let dims = NormOptions::default().dims(2);
    refused(nn::rms_norm_with(&ones([2, 2]), 1.0, dims), "rms_norm_with", &["no dimension 2"]);
    let stats = BatchStats::new(3);
    let (y, new) = nn::batch_norm(&ones([4, 2]), 1.0, 0.0, &stats, true);
    refused(y, "batch_norm", &["`stats.mean`", "2 features"]);
    refused(new.mean, "batch_norm", &["`stats.mean`"]);
    refused(nn::group_norm(&ones([4, 5]), 2, 1.0, 0.0), "group_norm", &["2 groups"]);
    refused(nn::dropout(&Key::new(0), 1.5, &ones([2])), "dropout", &["1.5", "float32[2]"]);
    refused(nn::glu(&ones([2, 3]), -1), "glu", &["size 3", "even"]);
    refused(nn::elu(&ids, 1.0), "elu", &["floats"]);
}

#[test]
fn losses() {
    let (x, labels) = (ones([2, 3]), Array::from([0, 1]));
    let loss = "softmax_cross_entropy_with_integer_labels";
    refused(nn::softmax_cross_entropy_with_integer_labels(&x, &ones([2])), loss, &["integers"]);
    refused(
        nn::softmax_cross_entropy_with_integer_labels(&x, &labels.reshape([1, 2])),
        loss,
        &["[2,3]", "[1,2]", "last dimension"],
    );
    refused(
        nn::softmax_cross_entropy_with_integer_labels(&x, &Array::zeros(I32.array_type([2, 3]))),
        loss,
        &["nn::softmax_cross_entropy("],
    );
    refused(nn::softmax_cross_entropy(&x, &ones([2])), "softmax_cross_entropy", &["integer_labels"]);
    refused(nn::l2_loss(&x, ones([3, 3])), "l2_loss", &["its `sub`", "float32[2,3]"]);
    refused(nn::huber_loss(&x, &x, -1.0), "huber_loss", &["-1"]);
    refused(nn::l2_loss(&x, x.astype(F64)), "l2_loss", &["float64", "astype(F32)"]);
    refused(nn::sigmoid_binary_cross_entropy(&x, ones([2])), "sigmoid_binary_cross_entropy", &["`labels`"]);
}

#[test]
fn attention() {
    let (q, k) = (ones([2, 5, 4, 8]), ones([2, 6, 2, 8]));
    let op = "dot_product_attention";
    refused(nn::dot_product_attention(&ones([5, 8]), &k, &k), op, &["`query` has rank 2", "heads"]);
    refused(nn::dot_product_attention(&q, &k, &ones([2, 7, 2, 8])), op, &["`value`"]);
    refused(nn::dot_product_attention(&q, &ones([2, 6, 3, 8]), &ones([2, 6, 3, 8])), op, &["4 heads"]);
    refused(nn::dot_product_attention(&q, &ones([2, 6, 2, 4]), &ones([2, 6, 2, 4])), op, &["features"]);
    refused(nn::dot_product_attention(&q, &k.astype(BF16), &k), op, &["bfloat16", "astype(F32)"]);
    let with = |o: AttentionOptions| nn::dot_product_attention_with(&q, &k, &k, o);
    let op = "dot_product_attention_with";
    let mask = ones([5, 6]);
    refused(with(AttentionOptions::default().mask(&mask)), op, &["`mask` must be booleans"]);
    refused(with(AttentionOptions::default().bias(&ones([5, 5]))), op, &["`bias` has shape [5,5]"]);
    let lengths = Array::from([1, 2, 3]);
    refused(with(AttentionOptions::default().key_value_seq_lengths(&lengths)), op, &["batch of 2"]);
    let dropout = |key: &Key, rate: f64| with(AttentionOptions::causal().dropout(key, rate));
    refused(dropout(&Key::new(0), 1.5), op, &["the rate 1.5", "causal().dropout(&key, 0.1)"]);
    assert!(dropout(&Key::new(0), 1.0).ty().is_ok());
    let at = Array::arange(0..4);
    refused(nn::rope(&q, &at, &Rope::halves(1e4)), "rope", &["`positions`", "arange(0..5)"]);
    refused(nn::rope(&ones([4, 8]), &at, &Rope::halves(1e4)), "rope", &["rank 2", "expand_dims(-2)"]);
    refused(nn::rope(&q, &Array::from(0), &Rope::halves(1e4).rotary_dims(3)), "rope", &["3 of 8"]);
}

#[test]
fn shardings() {
    let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
    let ids = Array::from([0, 1]).put(&mesh, p!["x"]);
    let table = ones([4, 2]).put(&mesh, p![_, "x"]);
    refused(nn::embed(&table, &ids), "embed", &["dimension 1 of `table`", "`table.reshard(p![_, _])`"]);
    assert!(nn::embed(&table.reshard(p![_, _]), &ids).ty().is_ok());
    let (x, labels) = (ones([2, 4]).put(&mesh, p!["x"]), Array::from([0, 1]).put(&mesh, p!["y"]));
    let loss = "softmax_cross_entropy_with_integer_labels";
    refused(
        nn::softmax_cross_entropy_with_integer_labels(&x, &labels),
        loss,
        &["over x", "over y", "`labels.reshard(p![\"x\"])`"],
    );
    let q = ones([2, 4, 2, 4]).put(&mesh, p![_, "x"]);
    refused(
        nn::dot_product_attention(&q, &q, &q),
        "dot_product_attention",
        &["dimension 1 of `key`", "`key.reshard(p![_, _, _, _])`"],
    );
    let sharded = ones([2, 4, 2, 4]).put(&mesh, p![_, _, _, "x"]);
    refused(nn::rope(&sharded, &Array::arange(0..4), &Rope::halves(1e4)), "rope", &["pairs", "reshard"]);
    let x = ones([4, 4]).put(&mesh, p!["x", _]);
    let scale = ones([4]).put(&mesh, p!["x"]);
    refused(
        nn::layer_norm(&x, &scale, 0.0),
        "layer_norm",
        &["`scale` is sharded over x", "`scale.reshard(p![_])`"],
    );
    let turned = ones([4, 4]).put(&mesh, p![_, "x"]);
    refused(nn::l2_loss(&x, &turned), "l2_loss", &["its `sub`", "float32[4@x,4]"]);
}

#[test]
fn initializers() {
    let key = Key::new(0);
    refused(init::lecun_normal(&key, [4]), "lecun_normal", &["in_dims", "init::normal"]);
    refused(init::he_uniform(&key, I32.array_type([4, 4])), "he_uniform", &["floats", "F32.array_type"]);
    refused(init::orthogonal(&key, [4], 1.0), "orthogonal", &["two dimensions"]);
    refused(init::orthogonal(&key, BF16.array_type([4, 4]), 1.0), "orthogonal", &["float32"]);
}

/// In a trace, an error is reported once, and all independent errors are.
#[test]
fn errors_in_a_trace() {
    let f = jit(|x: &Array| nn::layer_norm(x, ones([3]), 0.0) + nn::glu(x, 0));
    let error = f.call(ones([5, 2])).unwrap_err();
    let ops: Vec<&str> = error.diagnostics().iter().map(|d| d.op.as_str()).collect();
    assert_eq!(ops, ["layer_norm", "glu"], "{error}");
    // the error of an operand stays what it is
    let wrong = ones([2]) + ones([3]);
    assert_eq!(nn::rms_norm(&wrong, 1.0).ty().unwrap_err().diagnostics()[0].op, "add");
}
