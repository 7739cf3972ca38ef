//! Tests of the order of addition in prefix sums.

use super::*;
use crate::kernels::{buffer::Buffer, cpu::IsaLevel};
use ndarray::{Array, IxDyn};

fn sums(x: &ndarray::ArrayD<f32>, reverse: bool) -> ndarray::ArrayD<f32> {
    let mut y = Array::uninit(x.raw_dim());
    scan(x.view(), y.view_mut(), ScanMode { reverse, sum: true }, &f32::ops_for(CumulativeOp::Sum));
    // SAFETY: `scan` has written all elements.
    unsafe { y.assume_init() }
}
fn numbers(shape: &[usize]) -> ndarray::ArrayD<f32> {
    let mut k = 1u32;
    Array::from_shape_simple_fn(IxDyn(shape), || {
        k = k.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (k >> 8) as f32 / 4e6 - 2.0
    })
}

#[test]
fn a_row_has_the_same_bits_wherever_it_is_stored() {
    for n in [0, 1, 5, 16, 17, 100, BLOCK_ELEMENTS, BLOCK_ELEMENTS + 33] {
        let x = numbers(&[19, n]);
        for reverse in [false, true] {
            let expected = sums(&x, reverse);
            let mut turned = x.clone().reversed_axes().as_standard_layout().into_owned();
            turned.swap_axes(0, 1);
            assert_eq!(sums(&turned, reverse), expected, "side by side, {n}");
            for (x, y) in x.outer_iter().zip(expected.outer_iter()) {
                assert_eq!(sums(&x.to_owned(), reverse), y, "alone, {n}");
            }
            let stepped = numbers(&[19, 2 * n]);
            let view = stepped.slice(s![.., ..;2]).into_dyn();
            let mut y = Array::uninit(view.raw_dim());
            scan(view, y.view_mut(), ScanMode { reverse, sum: true }, &f32::ops_for(CumulativeOp::Sum));
            // SAFETY: `scan` has written all elements.
            let y = unsafe { y.assume_init() };
            assert_eq!(y, sums(&stepped.slice(s![.., ..;2]).to_owned().into_dyn(), reverse));
        }
    }
}

#[test]
fn registers_and_loops_make_the_same_bits() {
    for n in [5, 16, 100, BLOCK_ELEMENTS + 48, 2 * BLOCK_ELEMENTS] {
        let mut x = numbers(&[n]);
        x[n / 2] = -0.0;
        for reverse in [false, true] {
            let by = |sum: bool| {
                let mut y = Array::uninit(x.raw_dim());
                scan(x.view(), y.view_mut(), ScanMode { reverse, sum }, &f32::ops_for(CumulativeOp::Sum));
                let mut total = Array::uninit(IxDyn(&[]));
                totals(
                    x.view(),
                    total.view_mut(),
                    ScanMode { reverse, sum },
                    &f32::ops_for(CumulativeOp::Sum),
                );
                // SAFETY: `scan` and `totals` have written all elements.
                unsafe { (y.assume_init().mapv(f32::to_bits), total.assume_init().mapv(f32::to_bits)) }
            };
            let (sums, total) = by(true);
            assert_eq!((&sums, &total), (&by(false).0, &by(false).1), "{n}");
            assert_eq!(total[[]], sums[if reverse { 0 } else { n - 1 }]);
        }
    }
}

#[test]
fn each_level_makes_the_same_bits() {
    for (n, reverse) in [16, 48, 160].into_iter().flat_map(|n| [(n, false), (n, true)]) {
        let x = numbers(&[n]);
        let mut expected = Array::uninit(x.raw_dim());
        scan(
            x.view(),
            expected.view_mut(),
            ScanMode { reverse, sum: false },
            &f32::ops_for(CumulativeOp::Sum),
        );
        // SAFETY: `scan` has written all elements.
        let expected = unsafe { expected.assume_init() }.into_raw_vec_and_offset().0;
        let (x, mut memory) = (x.as_slice().unwrap(), Buffer::zeroed(4 * n).unwrap());
        for (level, row_bytes) in IsaLevel::available().flat_map(|l| [(l, 4 * n), (l, usize::MAX)]) {
            let y = memory.uninit_mut::<f32>();
            let total = simd::sums(level, x, Some(y), None, reverse, row_bytes);
            assert_eq!(total, simd::sums(level, x, None, None, reverse, row_bytes));
            assert_eq!(total.is_none(), level == IsaLevel::Base);
            if total.is_some() {
                // SAFETY: the memory is initialized.
                let y: Vec<f32> = y.iter().map(|y| unsafe { y.assume_init() }).collect();
                assert_eq!((total, y), (Some(expected[if reverse { 0 } else { n - 1 }]), expected.clone()));
            }
        }
    }
}

#[test]
fn sums_are_those_of_the_numbers() {
    let x = numbers(&[1, 3 * BLOCK_ELEMENTS / 2]);
    let (y, mut sum) = (sums(&x, false), 0.0);
    for (x, y) in x.iter().zip(&y) {
        sum += f64::from(*x);
        assert!((f64::from(*y) - sum).abs() < 1e-2 * (1.0 + sum.abs()), "{y} {sum}");
    }
}

#[test]
fn extremes_keep_nan() {
    let y = |kind: CumulativeOp| {
        let x = Array::from_vec(vec![1.0, -2.0, f32::NAN, 9.0]).into_dyn();
        let mut y = Array::uninit(x.raw_dim());
        scan(x.view(), y.view_mut(), ScanMode { reverse: false, sum: false }, &f32::ops_for(kind));
        // SAFETY: `scan` has written all elements.
        unsafe { y.assume_init() }.into_raw_vec_and_offset().0
    };
    assert_eq!((&y(CumulativeOp::Max)[..2], &y(CumulativeOp::Min)[..2]), (&[1.0, 1.0][..], &[1.0, -2.0][..]));
    assert!(y(CumulativeOp::Max)[2..].iter().chain(&y(CumulativeOp::Min)[2..]).all(|x| x.is_nan()));
}
