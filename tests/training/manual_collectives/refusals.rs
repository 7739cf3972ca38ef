//! Errors of the collectives of manual mode, as golden files.

use crate::error_checks::Unquoted;
use atmesh::prelude::*;
use atmesh::{AxisGroups, RaggedRows, smap};
use expect_test::{ExpectFile, expect_file};

fn refused(f: impl Fn(&Array) -> Array, golden: ExpectFile) {
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let x = Array::arange(0.0..32.0f32).reshape([8, 4]).put(&mesh, p!["X"]);
    let error = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| f(x)).call(&x).unwrap_err();
    golden.assert_eq(&(error.unquoted() + "\n"));
}
fn groups<const N: usize>(groups: [Vec<usize>; N]) -> AxisGroups {
    AxisGroups::new("X", groups)
}

#[test]
fn groups_hold_each_device_once() {
    refused(
        |x| x.psum(groups([vec![0, 1], vec![2]])),
        expect_file!["../../golden/manual_collectives/left_out.txt"],
    );
    refused(
        |x| x.pmax(groups([vec![0, 1], vec![2, 3, 0]])),
        expect_file!["../../golden/manual_collectives/twice.txt"],
    );
    refused(
        |x| x.psum(groups([vec![0, 1], vec![2, 3, 4]])),
        expect_file!["../../golden/manual_collectives/no_such_device.txt"],
    );
    refused(
        |x| x.all_gather(groups([vec![0], vec![1, 2, 3]]), CollectiveDim::tiled(0)),
        expect_file!["../../golden/manual_collectives/sizes.txt"],
    );
    refused(
        |x| x.all_gather(groups([vec![0, 1], vec![2, 3]]), CollectiveDim::tiled(0).invarying()),
        expect_file!["../../golden/manual_collectives/invarying.txt"],
    );
}

#[test]
fn devices_exist() {
    refused(|x| x.pbroadcast("X", 4), expect_file!["../../golden/manual_collectives/source.txt"]);
    refused(|x| x.pshuffle("X", [0, 1, 1, 3]), expect_file!["../../golden/manual_collectives/shuffle.txt"]);
    refused(|x| x.pswapaxes("X", 0), expect_file!["../../golden/manual_collectives/swap.txt"]);
}

/// Exchanges rows by four vectors, the first of which is given.
fn exchange(x: &Array, output: &Array, first: Array) -> Array {
    let rows = RaggedRows {
        input_offsets: first,
        send_sizes: Array::zeros(I32.array_type([4])),
        output_offsets: Array::zeros(I32.array_type([4])),
        recv_sizes: Array::zeros(I32.array_type([4])),
    };
    x.ragged_all_to_all("X", output, &rows)
}

#[test]
fn rows_are_counted_by_integer_vectors() {
    refused(
        |x| exchange(x, x, Array::zeros(F32.array_type([4]))),
        expect_file!["../../golden/manual_collectives/float_offsets.txt"],
    );
    refused(
        |x| exchange(x, x, Array::zeros(I32.array_type([3]))),
        expect_file!["../../golden/manual_collectives/lengths.txt"],
    );
    refused(
        |x| exchange(x, &x.astype(I32), Array::zeros(I32.array_type([4]))),
        expect_file!["../../golden/manual_collectives/dtype.txt"],
    );
    refused(
        |x| exchange(x, &x.slice(ix![.., ..2]), Array::zeros(I32.array_type([4]))),
        expect_file!["../../golden/manual_collectives/row_shape.txt"],
    );
}

#[test]
fn dimensions_of_smap_exist() {
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let error = smap(&mesh, "X", 2, 0, |x: &Array| x * 2.0).call(Array::ones([4, 4])).unwrap_err();
    expect_file!["../../golden/manual_collectives/smap_dim.txt"].assert_eq(&(error.unquoted() + "\n"));
    let error = smap(&mesh, "X", 0, None, |x: &Array| x * 2.0).call(Array::ones([4, 4])).unwrap_err();
    expect_file!["../../golden/manual_collectives/smap_varying.txt"].assert_eq(&(error.unquoted() + "\n"));
}
