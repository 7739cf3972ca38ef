//! Tests of Fourier transforms.

use super::*;
use crate::kernels::row_kernel::RowOutput;

/// Computes the transform by its definition.
fn slow(x: &[Complex<f64>], sign: f64) -> Vec<Complex<f64>> {
    let n = x.len();
    let term = |j: usize, k: usize| {
        x[j] * Complex::cis(sign * std::f64::consts::TAU * (j * k % n) as f64 / n as f64)
    };
    (0..n).map(|k| (0..n).map(|j| term(j, k)).sum()).collect()
}
fn numbers(n: usize) -> Vec<Complex<f64>> {
    (0..n).map(|i| Complex::new((i as f64 * 1.7).sin(), (i as f64 * 0.9 + 1.0).cos())).collect()
}
fn near(a: Complex<f64>, b: Complex<f64>) -> bool {
    (a - b).norm() < 1e-9 * (1.0 + b.norm())
}
fn run<A: Element, B: Element>(kind: FftKind, n: usize, x: &[A], y: &mut [B]) {
    let row_kernel = FftKernel::new(kind, &[n].into());
    let sides = RowSizes::new(kind, &[n]);
    let num_rows = x.len() / sides.ins[0];
    let out = RowOutput::from_slice(&[num_rows, sides.outs[0]], y);
    RowKernel::run(
        &row_kernel,
        &[RowInput::from_slice(&[num_rows, sides.ins[0]], x)],
        &mut RowOutputs::new([Some(out)]),
    );
}

#[test]
fn all_lengths_are_those_of_the_definition() {
    for n in 1..40 {
        let x = numbers(n);
        let mut y = vec![Complex::new(0.0, 0.0); n];
        run(FftKind::Forward, n, &x, &mut y);
        let want = slow(&x, -1.0);
        assert!(y.iter().zip(&want).all(|(a, b)| near(*a, *b)), "{n}");
        let mut back = vec![Complex::new(0.0, 0.0); n];
        run(FftKind::Inverse, n, &y, &mut back);
        assert!(back.iter().zip(&x).all(|(a, b)| near(*a, *b)), "{n}");
        let real: Vec<f64> = x.iter().map(|z| z.re).collect();
        let mut half = vec![Complex::new(0.0, 0.0); n / 2 + 1];
        run(FftKind::Real, n, &real, &mut half);
        let want = slow(&real.iter().map(|x| Complex::from(*x)).collect::<Vec<_>>(), -1.0);
        assert!(half.iter().zip(&want).all(|(a, b)| near(*a, *b)), "{n}: {half:?} {want:?}");
        // imaginary parts that must be ignored
        half[0].im = 7.0;
        if n % 2 == 0 {
            half[n / 2].im = 5.0;
        }
        let mut again = vec![0.0; n];
        run(FftKind::InverseReal, n, &half, &mut again);
        assert!(again.iter().zip(&real).all(|(a, b)| (a - b).abs() < 1e-9), "{n}");
    }
}

#[test]
fn a_row_has_the_same_bits_whatever_comes_with_it() {
    for n in [1, 2, 8, 12, 31, 64, 100] {
        let x: Vec<Complex<f32>> =
            numbers(7 * n).iter().map(|z| Complex::new(z.re as f32, z.im as f32)).collect();
        let mut all = vec![Complex::new(0f32, 0.0); 7 * n];
        run(FftKind::Forward, n, &x, &mut all);
        for (x, y) in x.chunks(n).zip(all.chunks(n)) {
            let mut one = vec![Complex::new(0f32, 0.0); n];
            run(FftKind::Forward, n, x, &mut one);
            assert_eq!(one, y);
        }
    }
}

/// How transforms are stored, and at what level they run.
#[derive(Clone, Copy, Debug)]
struct TestRun {
    level: IsaLevel,
    count: usize,
    columns: bool,
    in_place: bool,
}

/// Returns the transforms of `count` rows, which are stored as rows or as columns.
fn at_level<T: FftFloat>(plan: &DimPlan<T>, x: &[T], run: TestRun) -> Vec<T>
where
    Complex<T>: Element,
{
    let (sizes, count) = (RowSizes::new(plan.kind, &[plan.n]), run.count);
    let [from, to] = [plan.kind != FftKind::Real, plan.kind != FftKind::InverseReal];
    let mut y = vec![T::default(); count * sizes.outs[0] * if to { 2 } else { 1 }];
    let mut source = x.as_ptr().cast_mut();
    if run.in_place {
        y.copy_from_slice(x);
        source = y.as_mut_ptr();
    }
    let array = |base: *mut T, n: usize, complex: bool| {
        let [shape, strides] = if run.columns { [[n, count], [count, 1]] } else { [[count, n], [n, 1]] };
        let strides = strides.iter().map(|s| *s as isize).collect();
        RowsArray { base, shape: shape.to_vec(), strides, complex }
    };
    let x = array(source, sizes.ins[0], from);
    let made = array(y.as_mut_ptr(), sizes.outs[0], to);
    // SAFETY: the slices have these elements, and the processor has the level.
    unsafe { plan.run(run.level, &x, &made, usize::from(!run.columns)) }
    y
}
/// Moves the rows of `count` complex (or real) elements to columns.
fn transposed<T: Copy>(x: &[T], count: usize, parts: usize) -> Vec<T> {
    let n = x.len() / count / parts;
    (0..x.len()).map(|i| x[((i / parts % count) * n + i / parts / count) * parts + i % parts]).collect()
}
/// Checks some results of a forward transform by the definition.
fn agrees_with_definition<T: Copy + Into<f64>>(x: &[T], y: &[T], epsilon: f64) {
    let n = x.len() / 2;
    let number = |z: &[T]| Complex::<f64>::new(z[0].into(), z[1].into());
    for k in [0, n / 5, n / 3, n / 2, n - 1] {
        let terms = x.chunks(2).enumerate().map(|(j, z)| {
            let [re, im] = plan::turn(j * k, n);
            number(z) * Complex::new(re, im)
        });
        let (want, y) = (terms.sum::<Complex<f64>>(), number(&y[2 * k..]));
        assert!((y - want).norm() < 4.0 * epsilon * (1.0 + n as f64), "{n} {k}: {y} {want}");
    }
}
/// Returns numbers whose transforms have elements of similar size.
fn noise<T: FftFloat>(n: usize) -> Vec<T> {
    (0..n).map(|i| T::nearest(((i as f64 * 12.9898 + 0.5).sin() * 43758.5453).fract())).collect()
}
/// Compares all levels, layouts and numbers of transforms with single transforms at the base level.
fn levels_and_layouts<T: FftFloat + std::fmt::Debug + Into<f64>>(
    lengths: &[usize],
    counts: &[usize],
    kinds: &[FftKind],
    epsilon: f64,
) where
    Complex<T>: Element,
{
    for (n, kind) in lengths.iter().flat_map(|n| kinds.iter().map(move |kind| (n, *kind))) {
        let plan = DimPlan::<T>::new(kind, *n);
        let sizes = RowSizes::new(kind, &[*n]);
        let parts = |complex: bool| if complex { 2 } else { 1 };
        let [from, to] = [kind != FftKind::Real, kind != FftKind::InverseReal].map(parts);
        let (one, most) = (sizes.ins[0] * from, counts.iter().max().unwrap());
        let base = TestRun { level: IsaLevel::Base, count: 1, columns: false, in_place: false };
        let all: Vec<T> = noise(one * most);
        let alone: Vec<Vec<T>> = all.chunks(one).map(|x| at_level(&plan, x, base)).collect();
        if kind == FftKind::Forward {
            agrees_with_definition(&all[..one], &alone[0], epsilon);
        }
        let places = if from == to && sizes.ins == sizes.outs { &[false, true][..] } else { &[false] };
        for (count, in_place) in counts.iter().flat_map(|c| places.iter().map(move |p| (*c, *p))) {
            let (x, want) = (&all[..one * count], alone[..count].concat());
            for level in IsaLevel::available() {
                let run = TestRun { level, count, columns: false, in_place };
                assert!(at_level(&plan, x, run) == want, "{n} {kind:?} {run:?}");
                let run = TestRun { columns: true, ..run };
                let made = at_level(&plan, &transposed(x, count, from), run);
                assert!(made == transposed(&want, count, to), "{n} {kind:?} {run:?}");
            }
        }
    }
}

const ALL_KINDS: [FftKind; 4] = [FftKind::Forward, FftKind::Inverse, FftKind::Real, FftKind::InverseReal];

#[test]
fn levels_and_layouts_have_the_same_bits() {
    let counts = [1, 2, 16, 21];
    let lengths = [1, 2, 3, 4, 6, 8, 15, 16, 31, 60, 67, 128, 256, 300, 1000];
    levels_and_layouts::<f32>(&lengths, &counts, &ALL_KINDS, f32::EPSILON.into());
    levels_and_layouts::<f64>(&[1, 2, 4, 7, 8, 13, 67, 260], &counts, &ALL_KINDS, f64::EPSILON);
}

#[test]
fn lengths_that_fill_no_vectors_have_the_same_bits_at_all_levels() {
    // 30 columns of 35 elements, or the other way around
    let kinds = [FftKind::Forward, FftKind::Inverse];
    levels_and_layouts::<f32>(&[1050], &[1, 3, 17], &kinds, f32::EPSILON.into());
    levels_and_layouts::<f64>(&[1050], &[1, 3, 17], &kinds, f64::EPSILON);
    // side by side with vectors of 8 lanes, and one at a time with those of 16, which are too large
    levels_and_layouts::<f32>(&[6561], &[17], &[FftKind::Forward], f32::EPSILON.into());
    levels_and_layouts::<f32>(&[2100], &[17], &[FftKind::Real, FftKind::InverseReal], f32::EPSILON.into());
}

#[test]
fn grids_in_grids_have_the_same_bits_at_all_levels() {
    // sides of 128 and 256, of 270 and 280, and of Bluestein's algorithm
    let lengths = [1 << 15, 75600, 32771];
    levels_and_layouts::<f32>(&lengths, &[1], &[FftKind::Forward], f32::EPSILON.into());
    let kinds = [FftKind::Forward, FftKind::Inverse];
    levels_and_layouts::<f64>(&[1 << 15], &[2], &kinds, f64::EPSILON);
    levels_and_layouts::<f32>(&[1 << 16], &[1], &[FftKind::Real, FftKind::InverseReal], f32::EPSILON.into());
}

fn complex_rows(n: usize) -> Vec<Complex<f32>> {
    numbers(n).iter().map(|z| Complex::new(z.re as f32, z.im as f32)).collect()
}

#[test]
fn stages_have_the_bits_of_the_row() {
    for n in [1 << 12, 3000, 1 << 15] {
        let x = complex_rows(n);
        let mut whole = x.clone();
        run(FftKind::Inverse, n, &x, &mut whole);
        let kernel = FftKernel::new(FftKind::Inverse, &[n].into());
        let stages = kernel.parallel(&[DType::C64], n, &[true]).unwrap();
        let [rows, columns] = plan::grid_sides(n).unwrap();
        let ins = [RowInput::from_slice(&[n], &x)];
        let chunks = |all: usize| [0..all.min(32), all.min(32)..all];
        let mut made = chunks(columns).map(|chunk| vec![Complex::new(0f32, 0.0); chunk.len() * rows]);
        for (chunk, made) in chunks(columns).into_iter().zip(&mut made) {
            let shape = [made.len()];
            stages.run_first_pass(chunk, &ins, &mut RowOutput::from_slice(&shape, made));
        }
        let scratch = made.each_ref().map(|made| RowInput::from_slice::<Complex<f32>>(&[made.len()], made));
        for (k, chunk) in chunks(rows).into_iter().enumerate() {
            let mut y = vec![Complex::new(0f32, 0.0); columns * chunk.len()];
            let out = RowOutput::from_slice(&[columns, chunk.len()], &mut y);
            stages.run_second_pass(k, chunk.clone(), &ins, &scratch, &mut RowOutputs::new([Some(out)]));
            let places = (0..columns).flat_map(|j| chunk.clone().map(move |c| j * rows + c));
            assert!(y.iter().eq(places.map(|k| &whole[k])), "{n}");
        }
    }
}

#[test]
fn several_dimensions_are_one_after_the_other() {
    for kind in [FftKind::Forward, FftKind::Real, FftKind::InverseReal] {
        let lengths = [3, 4, 6];
        let kernel = FftKernel::new(kind, &lengths.into());
        let sizes = RowSizes::new(kind, &lengths);
        let floats = |complex: bool, n: usize| if complex { 2 * n } else { n };
        let count = 2 * sizes.ins.iter().product::<usize>();
        let x: Vec<f64> = numbers(floats(kind != FftKind::Real, count)).iter().map(|z| z.re).collect();
        let made = 2 * sizes.outs.iter().product::<usize>();
        let mut y = vec![0.0; floats(kind != FftKind::InverseReal, made)];
        let shape = |sizes: &[usize]| [&[2], sizes].concat();
        with_complex(kind != FftKind::Real, &shape(&sizes.ins), &x, |x| {
            with_complex_mut(kind != FftKind::InverseReal, &shape(&sizes.outs), &mut y, |y| {
                RowKernel::run(&kernel, &[x], &mut RowOutputs::new([Some(y)]));
            });
        });
        let (mut values, mut dims) = (x, shape(&sizes.ins));
        for (d, kind) in kernel.dims() {
            let plan = DimPlan::<f64>::new(kind, lengths[d]);
            let [from, to] = [kind != FftKind::Real, kind != FftKind::InverseReal];
            let mut after = dims.clone();
            after[d + 1] = RowSizes::new(kind, &[lengths[d]]).outs[0];
            let mut next = vec![0.0; floats(to, after.iter().product())];
            let array = |base: *mut f64, dims: &[usize], complex: bool| RowsArray {
                base,
                shape: dims.to_vec(),
                strides: (0..4).map(|d| dims[d + 1..].iter().product::<usize>() as isize).collect(),
                complex,
            };
            let x = array(values.as_mut_ptr(), &dims, from);
            // SAFETY: the vectors have these elements.
            unsafe { plan.run(cpu::level(), &x, &array(next.as_mut_ptr(), &after, to), d + 1) }
            (values, dims) = (next, after);
        }
        assert_eq!(values, y, "{kind:?}");
    }
}

/// Calls `f` with an operand of floats, or of pairs of them.
fn with_complex(complex: bool, shape: &[usize], x: &[f64], f: impl FnOnce(RowInput<'_>)) {
    if !complex {
        return f(RowInput::from_slice(shape, x));
    }
    let pairs: Vec<Complex<f64>> = x.chunks(2).map(|z| Complex::new(z[0], z[1])).collect();
    f(RowInput::from_slice(shape, &pairs));
}

/// Calls `f` with a result of floats, or of pairs of them.
fn with_complex_mut(complex: bool, shape: &[usize], y: &mut [f64], f: impl FnOnce(RowOutput<'_>)) {
    if !complex {
        return f(RowOutput::from_slice(shape, y));
    }
    let mut pairs = vec![Complex::new(0.0, 0.0); y.len() / 2];
    f(RowOutput::from_slice(shape, &mut pairs));
    y.iter_mut().zip(pairs.iter().flat_map(|z| [z.re, z.im])).for_each(|(y, z)| *y = z);
}
