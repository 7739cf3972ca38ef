//! A primitive is identified by its type and fields: two that differ in one field are different, in
//! programs and in caches.

use atmesh::Precision;
use atmesh::mesh::{AxisType, DeviceId};
use atmesh::ops::PRIMITIVES;
use atmesh::ops::along_axis::{Argsort, CumulativeOp, CumulativeScan, Fft, FftKind, Recurrence, Sort, TopK};
use atmesh::ops::collective::{
    AllGather, AllGatherTo, AllToAllPrim, AxisIndex, CollectiveGroup, OwnPart, Pbroadcast, Pcast, PcastTo,
    Ppermute, Preduce, PsumScatter,
};
use atmesh::ops::creation::{Full, Iota};
use atmesh::ops::dot_general::DotGeneral;
use atmesh::ops::elementwise::{Binary, Bitcast, Clamp, Convert, Select, Unary};
use atmesh::ops::indexing::{DynamicSlice, DynamicUpdateSlice, Gather, GatherDims, Scatter};
use atmesh::ops::linalg::{
    Cholesky, Cofactors, Det, Eigh, Eigvalsh, Inv, Lu, Pinv, Qr, Slogdet, Solve, Svd, Svdvals,
    TriangularSolve,
};
use atmesh::ops::ragged_dot::{RaggedDot, RaggedDotMode};
use atmesh::ops::random::{RandomBits, RandomFoldIn, RandomKeyData, RandomSplit, RandomWrap};
use atmesh::ops::reduce::{Reduce, Reduction};
use atmesh::ops::shape::{BroadcastInDim, ExpandDims, Reshape, Rev, Roll, Squeeze, Transpose};
use atmesh::ops::sharding::{Constrain, Copy, Reshard};
use atmesh::ops::slicing::{Concatenate, Pad, Slice, UpdateSlice};
use atmesh::ops::windows::{Conv, ReduceWindow, Window, WindowExtreme, WindowPick, Windows};
use atmesh::prelude::*;
use atmesh::program::loop_nest::{OutOfBounds, Reducer};
use atmesh::program::{Builder, DeviceGroups, Prim, Primitive, Program, TypedOperand};
use atmesh::types::{Scalar, Shape};
use atmesh::{Axes, Error, checkpoint};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Fields that do not affect the results of these examples, or whose variants are not accepted with
/// the same operands.
const UNSEEN: &[(&str, &str)] = &[
    ("group.mesh", "a body is on one mesh, and so are its values"),
    ("group.checked", "says whether types track what varies, not what is computed"),
    ("num_batch_dims", "operands with more batch dimensions have a higher rank"),
    ("num_row_dims", "operands with more dimensions of rows have a higher rank"),
    ("keys", "a sort of one operand has one key"),
    ("num_key_dims", "the rank of the operand says it too"),
    ("ty.varying", "what is created outside of a body varies over nothing"),
    ("own_part group.axes", "the size of the dimension says how many devices there are"),
    ("pcast to", "there is one cast only from what varies"),
    ("pbroadcast group.axes", "the source is not among fewer devices"),
    ("ppermute group.axes", "the same pairs are not of another number of devices"),
    ("random_split ty.dtype", "a key is split into keys"),
    ("gather dims.collapsed", "a window of one element has the same one, whichever dimension it is without"),
    ("rfft kind", "it alone takes floats"),
    ("precision", "only the accelerators of XLA multiply with less than full precision"),
    ("open_dims", "gives freedom to propagation, which has no reason to use it here"),
];

/// Functions of bools that coincide under two names.
const SAME: &[&str] = &[
    "of and and min",
    "of or and max",
    "of xor and ne",
    "of min and and",
    "of max and or",
    "of ne and xor",
    "of pmax[axes=X] and pmax",
    "of pmin[axes=X] and pmin",
];

/// Lists all primitives that differ from `$prim` in one field, with the name of the field. A
/// missing field is a compile error.
macro_rules! others {
    ($prim:expr, $x:ident; $($ty:ident { $($field:ident: $values:expr),* })*) => {
        $(if let Some($x) = $prim.downcast_ref::<$ty>() {
            let $ty { $($field: _),* } = $x;
            #[allow(unused_mut, reason = "some have no fields")]
            let mut all: Vec<(String, Prim)> = Vec::new();
            $(for value in $values {
                let (part, value) = value.named();
                #[allow(clippy::needless_update, reason = "some have one field only")]
                let other = $ty { $field: value, ..$x.clone() };
                all.push((format!("{}{part}", stringify!($field)), Arc::new(other)));
            })*
            return all;
        })*
    };
}

/// A value of a field, or of a named component of it.
trait Named<T> {
    fn named(self) -> (&'static str, T);
}
impl<T> Named<T> for T {
    fn named(self) -> (&'static str, T) {
        ("", self)
    }
}
/// A value that differs in one component of the field.
struct In<T>(&'static str, T);
impl<T> Named<T> for In<T> {
    fn named(self) -> (&'static str, T) {
        (self.0, self.1)
    }
}
fn grid(axes: AxisType) -> Mesh {
    Mesh::with_types([("X", 2, axes), ("Y", 3, axes)]).expect("two axes make a mesh")
}
/// Reverses the device order of a mesh.
fn backwards(mesh: &Mesh) -> Mesh {
    let devices: Vec<DeviceId> = mesh.devices().iter().rev().copied().collect();
    let axes = mesh.axis_names().iter().map(|a| (*a, mesh.axis_size(*a).expect("its own axis")));
    let turned = Mesh::of_devices(&devices, axes).expect("the same devices");
    let typed = mesh.axis_names().iter().zip(mesh.axis_types());
    typed.fold(turned, |mesh, (axis, ty)| mesh.with_axis_types(*axis, *ty).expect("its own axis"))
}
fn alongs(x: &CollectiveGroup) -> Vec<In<CollectiveGroup>> {
    let CollectiveGroup { mesh, axes: _, checked, groups: _ } = x;
    vec![
        In(".mesh", CollectiveGroup { mesh: backwards(mesh), ..x.clone() }),
        In(".axes", CollectiveGroup { axes: Axes::none(), ..x.clone() }),
        In(".checked", CollectiveGroup { checked: !checked, ..x.clone() }),
    ]
}
/// Changes the groups too, of a collective that is for groups.
fn grouped(x: &CollectiveGroup) -> Vec<In<CollectiveGroup>> {
    let one_each = DeviceGroups::new(vec![vec![0], vec![1]]);
    let groups = In(".groups", CollectiveGroup { groups: Some(one_each), ..x.clone() });
    alongs(x).into_iter().chain([groups]).collect()
}
fn places(x: &GatherDims) -> Vec<In<GatherDims>> {
    let GatherDims {
        start_index_map: of,
        collapsed_dims: collapsed,
        batching_dims: batching,
        offset_dims: windows,
        mode: beyond,
    } = x;
    let other = match beyond {
        OutOfBounds::Clip => OutOfBounds::Drop,
        OutOfBounds::Drop => OutOfBounds::Clip,
    };
    assert_eq!(
        (&of[..], &collapsed[..], &batching[..], &windows[..]),
        (&[0][..], &[0][..], &[][..], &[1][..])
    );
    vec![
        In(".of", GatherDims { start_index_map: vec![1], collapsed_dims: vec![1], ..x.clone() }),
        In(".collapsed", GatherDims { collapsed_dims: vec![1], ..x.clone() }),
        In(
            ".batching",
            GatherDims {
                start_index_map: vec![1],
                collapsed_dims: vec![],
                batching_dims: vec![(0, 0)],
                ..x.clone()
            },
        ),
        In(".windows", GatherDims { offset_dims: vec![0], ..x.clone() }),
        In(".beyond", GatherDims { mode: other, ..x.clone() }),
    ]
}
fn types(x: &ArrayType) -> Vec<In<ArrayType>> {
    let ArrayType { dtype, shape, mesh, spec: _, varying: _ } = x;
    let to = if *dtype == U32 { U64 } else { F64 };
    vec![
        In(".dtype", ArrayType { dtype: to, ..x.clone() }),
        In(".shape", ArrayType { shape: shape.iter().map(|n| n * 2).collect(), ..x.clone() }),
        In(".mesh", ArrayType { mesh: mesh.as_ref().map(backwards), ..x.clone() }),
        In(".spec", ArrayType { spec: p!["X"], ..x.clone() }),
        In(".varying", ArrayType { varying: "X".into(), ..x.clone() }),
    ]
}

/// Returns windows that differ from `over` in one component; the number of windows per dimension is
/// the same.
fn further(over: &Windows) -> [In<Windows>; 2] {
    let mut later = over.dims.clone();
    (later[1].padding_low, later[1].padding_high) = (later[1].padding_low - 1, later[1].padding_high + 1);
    let mut taps = over.sizes.clone();
    taps[1] += 20;
    let mut wider = over.dims.clone();
    wider[1].padding_high += 20;
    [
        In(".taps", Windows { sizes: taps, dims: wider }),
        In(".windows", Windows { dims: later, ..over.clone() }),
    ]
}

fn others(prim: &dyn Primitive) -> Vec<(String, Prim)> {
    let next = |prim: Prim| vec![(prim.name().to_string(), prim)];
    if let Some(f) = prim.downcast_ref::<Unary>() {
        return match f {
            Unary::Gelu { approximate } => next(Arc::new(Unary::Gelu { approximate: !approximate })),
            Unary::IntegerPow(n) => next(Arc::new(Unary::IntegerPow(n - 1))),
            plain => {
                assert!(Unary::PLAIN.contains(plain), "say what differs in each parameter of {plain:?}");
                let others = Unary::PLAIN.iter().filter(|g| *g != plain);
                others.map(|g| ("function".to_string(), Arc::new(*g) as Prim)).collect()
            }
        };
    }
    if let Some(f) = prim.downcast_ref::<Binary>() {
        let others = Binary::ALL.iter().filter(|g| *g != f);
        return others.map(|g| ("function".to_string(), Arc::new(*g) as Prim)).collect();
    }
    others! { prim, x;
        Select {}
        Clamp {}
        Convert { dtype: [F64] }
        Bitcast { dtype: [U32] }
        Reduce {
            kind: [Reduction::Prod, Reduction::Or, Reduction::And, Reduction::Sum].into_iter().filter(|k| *k != x.kind),
            axes: [vec![0]],
            out_sharding: [Some(p!["X"])]
        }
        ReduceWindow {
            kind: [Reduction::Prod, Reduction::Or, Reduction::And, Reduction::Sum].into_iter().filter(|k| *k != x.kind),
            windows: further(&x.windows),
            out_sharding: [Some(p!["X"])]
        }
        WindowExtreme { windows: further(&x.windows) }
        WindowPick {
            windows: further(&x.windows),
            transposed: [!x.transposed],
            out_sharding: [Some(p!["X"])]
        }
        Conv {
            batch: [[vec![3], vec![0]]],
            contracting: [[vec![3], vec![1]]],
            spatial: [[vec![3], vec![2]]],
            windows: [
                In(".stride", vec![Window { stride: 2, padding_low: 1, ..Window::default() }]),
                In(".low", vec![Window::default()]),
                In(".high", vec![Window { padding_low: 1, padding_high: 1, ..Window::default() }]),
                In(".base", vec![Window { padding_low: 1, base_dilation: 2, ..Window::default() }]),
                In(".dilation", vec![Window { padding_low: 1, window_dilation: 2, ..Window::default() }]),
            ],
            output_order: [vec![1, 0, 2, 3]],
            out_sharding: [Some(p!["X"])],
            accum_dtype: [Some(F64)],
            precision: [Precision::Default, Precision::High]
        }
        DotGeneral {
            contracting: [[vec![1], vec![1]]],
            batch: [[vec![1], vec![0]]],
            out_sharding: [Some(p!["X"])],
            accum_dtype: [Some(F64)],
            precision: [Precision::Default, Precision::High]
        }
        CumulativeScan {
            kind: [CumulativeOp::Sum, CumulativeOp::Prod, CumulativeOp::Max, CumulativeOp::Min, CumulativeOp::LogSumExp].into_iter().filter(|k| *k != x.kind),
            axis: [0],
            reverse: [!x.reverse]
        }
        Recurrence { axis: [0], reverse: [true] }
        Sort { axis: [0], keys: [2] }
        Argsort { axis: [0], keys: [2] }
        TopK { k: [1], axis: [0] }
        Fft {
            kind: [FftKind::Forward, FftKind::Inverse].into_iter().filter(|k| *k != x.kind),
            lengths: [Shape::from([4, 6]), [6, 4].into(), [6].into(), [3].into()].into_iter().filter(|l| *l != x.lengths)
        }
        Full { ty: types(&x.ty), value: [Scalar::Float(2.0), Scalar::Float(-0.0)] }
        Iota { ty: types(&x.ty), dimension: [0] }
        RandomBits { ty: types(&x.ty), num_key_dims: [1] }
        RandomSplit { ty: types(&x.ty), num_key_dims: [1] }
        RandomFoldIn {}
        RandomKeyData {}
        RandomWrap {}
        BroadcastInDim {
            shape: [Shape::from([2, 3, 2])],
            broadcast_dimensions: [vec![2, 1]],
            out_sharding: [Some(p!["X"])]
        }
        Reshape { new_sizes: [Shape::from([6, 4])], out_sharding: [Some(p!["X"])] }
        Transpose { permutation: [vec![0, 2, 1]] }
        Squeeze { dimensions: [vec![]] }
        ExpandDims { dimensions: [vec![0, 1]] }
        Rev { dimensions: [vec![0]] }
        Roll { shift: [2], dimension: [0] }
        Slice {
            start: [vec![2, 0]],
            limit: [vec![5, 3]],
            strides: [vec![3, 1]],
            out_sharding: [Some(p!["Y"])]
        }
        Pad {
            low: [vec![1, -1]],
            high: [vec![0, 1]],
            interior: [vec![0, 0]],
            value: [Scalar::Float(0.25), Scalar::Float(f64::NAN)],
            out_sharding: [Some(p!["X"])]
        }
        Concatenate { dimension: [0] }
        UpdateSlice { start: [vec![1, 1]] }
        DynamicSlice {
            sizes: [Shape::from([3, 3, 1, 2])],
            dims: [vec![1, 3, 2]],
            batch_dims: [vec![1]],
            out_sharding: [Some(p!["Y"])]
        }
        Gather {
            dims: places(&x.dims),
            slice_sizes: [Shape::from([1, 2])],
            fill: [Scalar::Float(2.0)],
            out_sharding: [Some(p!["X"])]
        }
        Scatter {
            dims: places(&x.dims),
            reducer: [Some(Reducer::Add), None].into_iter().filter(|c| *c != x.reducer),
            out_sharding: [Some(p!["X"])]
        }
        DynamicUpdateSlice { dims: [vec![3, 2]], batch_dims: [vec![1]], reducer: [Some(Reducer::Add)], out_sharding: [Some(p!["Y"])] }
        Reshard { mesh: [backwards(&x.mesh)], spec: [p![_, "X"]], open_dims: [vec![0]] }
        Constrain { mesh: [backwards(&x.mesh)], spec: [p![_, "X"]], open_dims: [vec![1]] }
        Copy {}
        RaggedDot {
            mode: [RaggedDotMode::PerRow, RaggedDotMode::PerGroup].into_iter().filter(|m| *m != x.mode),
            num_batch_dims: [x.num_batch_dims + 1],
            num_row_dims: [x.num_row_dims + 1],
            out_sharding: [Some(p!["X"])],
            precision: [Precision::Default]
        }
        Cholesky {}
        TriangularSolve {
            left_side: [!x.left_side],
            lower: [!x.lower],
            transpose_a: [!x.transpose_a],
            unit_diagonal: [!x.unit_diagonal]
        }
        Lu {}
        Qr { full_matrices: [!x.full_matrices] }
        Eigh {}
        Eigvalsh {}
        Svd { full_matrices: [!x.full_matrices] }
        Svdvals {}
        Solve { transposed: [!x.transposed] }
        Inv {}
        Det {}
        Slogdet {}
        Cofactors {}
        Pinv { tolerance: [Scalar::Float(0.9)] }
        Preduce {
            group: grouped(&x.group),
            reducer: [Reducer::Add, Reducer::Max, Reducer::Min, Reducer::And].into_iter().filter(|c| *c != x.reducer)
        }
        AllGather {
            group: grouped(&x.group),
            dim: [0],
            tiled: [!x.tiled],
            to: [AllGatherTo::Invarying, AllGatherTo::Reduced]
        }
        PsumScatter { group: grouped(&x.group), dim: [0], tiled: [!x.tiled] }
        OwnPart { group: alongs(&x.group), dim: [1], tiled: [!x.tiled] }
        AllToAllPrim { group: grouped(&x.group), split_dim: [0], concat_dim: [1], tiled: [!x.tiled] }
        Ppermute { group: alongs(&x.group), pairs: [vec![(0, 1)]] }
        Pbroadcast { group: alongs(&x.group), source: [0] }
        AxisIndex { group: alongs(&x.group) }
        Pcast { group: alongs(&x.group), to: [PcastTo::Varying, PcastTo::Reduced].into_iter().filter(|c| *c != x.to) }
    }
    panic!("say what differs in each field of {}: a row of `others!`", prim.key())
}

/// Returns the list, with operands on which other values of the fields are accepted, and bools
/// where these make a difference.
pub(super) fn subjects() -> Vec<(Prim, Vec<ArrayType>)> {
    let mut all: Vec<(Prim, Vec<ArrayType>)> = Vec::new();
    let on = |ty: ArrayType| ty.on(&grid(AxisType::Explicit), p![]);
    for entry in PRIMITIVES {
        let (prim, operands) = (entry.example)();
        let square = || operands.iter().map(|t| ArrayType { shape: [2, 2].into(), ..t.clone() }).collect();
        let of = |prim: Prim| (prim, operands.clone());
        all.push(match entry.name {
            "dot_general" => {
                let (contracting, batch) = ([vec![2], vec![1]], [vec![0], vec![0]]);
                (
                    Arc::new(DotGeneral { contracting, batch, ..DotGeneral::default() }),
                    vec![F32.array_type([2, 2, 2]); 2],
                )
            }
            // Both modes accept operands of equal sizes with two dimensions of rows.
            "ragged_dot" | "ragged_dot_per_group" => {
                let mode = match entry.name {
                    "ragged_dot" => RaggedDotMode::PerRow,
                    _ => RaggedDotMode::PerGroup,
                };
                let cube = [F32, Bool, F32].map(|d| d.array_type([2, 2, 2]));
                (Arc::new(RaggedDot { num_row_dims: 2, ..RaggedDot::new(mode) }), cube.to_vec())
            }
            // The number of windows equals the number of elements.
            "window_pick" | "window_place" => {
                let window = Window { padding_low: 1, ..Window::default() };
                let over = Windows { sizes: vec![1, 2], dims: vec![Window::default(), window] };
                let turned = entry.name == "window_place";
                (
                    Arc::new(WindowPick { windows: over, transposed: turned, out_sharding: None }),
                    vec![I32.array_type([4, 61]), F32.array_type([4, 61])],
                )
            }
            "conv_general_dilated" => {
                let conv = Conv {
                    batch: [vec![0], vec![0]],
                    contracting: [vec![1], vec![1]],
                    spatial: [vec![2], vec![2]],
                    windows: vec![Window { padding_low: 1, ..Window::default() }],
                    output_order: vec![0, 1, 2, 3],
                    out_sharding: None,
                    accum_dtype: None,
                    precision: Precision::Highest,
                };
                (Arc::new(conv), vec![F32.array_type([2, 2, 2, 2]); 2])
            }
            "broadcast_in_dim" => {
                let (shape, broadcast_dimensions) = ([2, 2, 2].into(), vec![2, 0]);
                (Arc::new(BroadcastInDim { shape, broadcast_dimensions, out_sharding: None }), square())
            }
            "full" => of(Arc::new(Full { ty: on(F32.array_type([8, 4])), value: Scalar::Float(0.0) })),
            "iota" => of(Arc::new(Iota { ty: on(I32.array_type([8, 4])), dimension: 1 })),
            "random_bits" => of(Arc::new(RandomBits { ty: on(U32.array_type([8, 4])), num_key_dims: 0 })),
            "random_split" => {
                of(Arc::new(RandomSplit { ty: on(DType::Key.array_type([8])), num_key_dims: 0 }))
            }
            // The number of complex elements equals the number of real ones.
            "irfft" => (
                Arc::new(Fft { kind: FftKind::InverseReal, lengths: [2].into() }),
                vec![C64.array_type([4, 2])],
            ),
            "gather" => {
                let at = GatherDims::rows(2, 0, 1, OutOfBounds::Drop);
                let prim = Gather {
                    dims: at,
                    slice_sizes: [1, 1].into(),
                    fill: Scalar::Float(0.5),
                    out_sharding: None,
                };
                (Arc::new(prim), vec![F32.array_type([12, 12]), I32.array_type([12, 1])])
            }
            name if name.starts_with("scatter") => {
                (prim, vec![F32.array_type([12, 12]), F32.array_type([12, 12]), I32.array_type([12, 1])])
            }
            "dynamic_slice" => {
                let (dims, lead) = (vec![1, 2, 3], vec![0]);
                let numbers = [I32.array_type([3]), I32.array_type([3]), I32.array_type([3])];
                (
                    Arc::new(DynamicSlice {
                        sizes: [3, 3, 2, 2].into(),
                        dims,
                        batch_dims: lead,
                        out_sharding: None,
                    }),
                    [vec![F32.array_type([3, 3, 4, 6])], numbers.to_vec()].concat(),
                )
            }
            "dynamic_update_slice" => (
                Arc::new(DynamicUpdateSlice {
                    dims: vec![2, 3],
                    batch_dims: vec![0],
                    reducer: None,
                    out_sharding: None,
                }),
                vec![
                    F32.array_type([3, 3, 4, 6]),
                    F32.array_type([3, 3, 2, 2]),
                    I32.array_type([3]),
                    I32.array_type([3]),
                ],
            ),
            "triangular_solve" => (prim, vec![F32.array_type([2, 2, 2]); 2]),
            "concatenate" | "psum_scatter" | "own_part" => (prim, square()),
            "all_gather" | "all_to_all" => (prim, square()),
            "reshard" => of(Arc::new(Reshard::new(grid(AxisType::Explicit), p!["X"]))),
            "constrain" => of(Arc::new(Constrain::new(grid(AxisType::Auto), p!["X"]))),
            _ => (prim, operands),
        });
        let (prim, operands) = (entry.example)();
        if let Some(x) = prim.downcast_ref::<Preduce>().filter(|x| x.reducer == Reducer::Max) {
            let bools = operands.iter().map(|t| ArrayType { dtype: Bool, ..t.clone() }).collect();
            all.push((Arc::new(Preduce { reducer: Reducer::Or, ..x.clone() }), bools));
        }
    }
    all
}

/// Returns non-integral elements of both signs; some are shared by two seeds.
pub(super) fn numbers(ty: &ArrayType, seed: usize) -> Array {
    let n = ty.shape.num_elements();
    let x = Array::from(
        (0..n)
            .map(|i| ((i * 37 + if i % 5 == 0 { 0 } else { seed * 13 } + 11) % 61) as f64 / 16.0 - 1.72)
            .collect::<Vec<_>>(),
    );
    let x = match ty.dtype {
        Bool => x.gt(0.0),
        DType::Key => return Key::new(7).split_array(ty.shape.clone()),
        d if d.is_complex() => x.complex(x.sin()).astype(d),
        d if d.is_float() => x.astype(d),
        d => (x * 16.0).astype(I64).astype(d),
    };
    x.reshape(&ty.shape)
}

/// The results of a primitive: types, shardings and all bits.
#[derive(Debug, PartialEq)]
struct Made(Vec<(String, Option<Sharding>, Vec<u64>)>);

impl Made {
    fn from_results(ys: Vec<Array>) -> Result<Made> {
        let one = |y: &Array| -> Result<_> {
            let (ty, sharding) = (y.ty()?, y.sharding()?);
            let y = match ty.spec.unreduced_axes().is_empty() {
                true => y.clone(),
                false => y.reshard(ty.spec.unreduced(Axes::none())),
            };
            let y = if ty.dtype == DType::Key { Key::from_array(y).data() } else { y };
            let floats = |y: &Array| -> Result<Vec<u64>> {
                Ok(y.astype(F64).to_vec::<f64>()?.into_iter().map(f64::to_bits).collect())
            };
            let bits = match ty.dtype {
                d if d.is_complex() => [floats(&y.real())?, floats(&y.imag())?].concat(),
                d if d.is_float() => floats(&y)?,
                _ => y.astype(U64).to_vec::<u64>()?,
            };
            Ok((ty.to_string(), sharding, bits))
        };
        ys.iter().map(one).collect::<Result<_>>().map(Made)
    }
}

pub(super) fn operands(types: &[ArrayType]) -> Vec<TypedOperand> {
    types.iter().map(|ty| TypedOperand::new(ty.clone(), false)).collect()
}

/// Returns a program that applies the primitive.
fn program(prim: &Prim, types: &[ArrayType]) -> Result<Program> {
    let mut b = Builder::new();
    let inputs: Vec<_> = types.iter().map(|ty| b.input(ty.clone(), None)).collect();
    let outputs = b.emit(prim.clone(), &inputs)?;
    Ok(b.finish(&outputs))
}

/// Returns the spec that concatenates blocks along dimension 0 over the axes over which they vary;
/// the reduced and unreduced axes are kept.
pub(super) fn border(ty: &ArrayType) -> Spec {
    let sets = Spec::replicated(0).unreduced(ty.spec.unreduced_axes()).reduced(ty.spec.reduced_axes());
    if ty.varying.is_empty() { sets } else { Spec::from_dims(vec![ty.varying.clone()]) }
}

/// Runs the primitive through all caches of the process: as an eager operation, and inside a
/// program.
fn run(prim: &Prim, types: &[ArrayType], xs: &[Array]) -> Result<Vec<Made>> {
    let apply = |xs: &[Array]| match prim.downcast_ref::<AxisIndex>() {
        // Without operands, it belongs to the body in which it is called.
        Some(x) => vec![axis_index(x.group.axes.clone()).reshape([1])],
        None => Array::apply(prim.clone(), &xs.iter().map(Into::into).collect::<Vec<_>>()),
    };
    if prim.collective().is_none() {
        let nested = checkpoint(xs.to_vec(), |xs: Vec<Array>| apply(&xs));
        return Ok(vec![Made::from_results(apply(xs))?, Made::from_results(nested)?]);
    }
    let results = prim.types(&operands(types)).map_err(Error::from)?;
    let manual = types.iter().chain(&results).find_map(|t| t.mesh.clone()).expect("a body is on a mesh");
    let mesh = manual.with_axis_types("X", AxisType::Explicit)?;
    let (ins, outs): (Vec<Spec>, Vec<Spec>) =
        (types.iter().map(border).collect(), results.iter().map(border).collect());
    // An extra operand ensures that there is at least one.
    let (ins, xs) = ([ins, vec![p![]]].concat(), [xs, &[Array::from(0.0)]].concat());
    let body = |xs: &Vec<Array>| apply(&xs[..xs.len() - 1]);
    Ok(vec![Made::from_results(shard_map(&mesh, ins, outs, body).call(&xs)?)?])
}

/// Returns arrays of these types, on `mesh` if it is given. A varying block is one of two.
fn place(types: &[ArrayType], mesh: Option<&Mesh>) -> Vec<Array> {
    let one = |(k, ty): (usize, &ArrayType)| {
        let mut shape = ty.shape.to_vec();
        if !ty.varying.is_empty() {
            shape[0] *= 2;
        }
        let x = numbers(&ArrayType { shape: shape.into(), ..ty.dtype.array_type([]) }, k);
        match mesh {
            Some(mesh) => x.put(mesh, Spec::replicated(ty.rank())),
            None => x,
        }
    };
    types.iter().enumerate().map(one).collect()
}

#[test]
fn two_that_differ_in_one_field_are_two() -> Result<()> {
    let state = RandomState::new();
    let mesh = grid(AxisType::Explicit);
    let mut unseen: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for (prim, types) in subjects() {
        for (field, other) in others(&*prim) {
            let what = format!("{} and {}, which differ in `{field}`", prim.key(), other.key());
            assert!(*prim != *other, "{what} are equal");
            assert!(*other != *prim, "{what} are equal the other way round");
            assert!(state.hash_one(&*prim) == state.hash_one(&*prim.clone()));
            let mut why = Vec::new();
            for mesh in [None, Some(&mesh)] {
                let placed = match mesh {
                    Some(mesh) if prim.collective().is_none() => {
                        types.iter().map(|t| ArrayType { mesh: Some(mesh.clone()), ..t.clone() }).collect()
                    }
                    _ => types.clone(),
                };
                let (Ok(one), two) = (program(&prim, &placed), program(&other, &placed)) else { continue };
                let two = match two {
                    Ok(two) => two,
                    Err(e) => {
                        why.push(format!("{e}"));
                        continue;
                    }
                };
                assert_ne!(one, two, "{what} make equal programs");
                let xs = place(&types, mesh.filter(|_| prim.collective().is_none()));
                let (one, two) = match (run(&prim, &placed, &xs), run(&other, &placed, &xs)) {
                    (Ok(one), Ok(two)) => (one, two),
                    (one, two) => {
                        why.extend([one.err(), two.err()].into_iter().flatten().map(|e| format!("{e}")));
                        continue;
                    }
                };
                if one.iter().zip(&two).all(|(one, two)| one != two) {
                    why = vec!["differs".into()];
                    break;
                }
                why.push(format!("the results of {what} are equal"));
            }
            unseen.entry((prim.name(), field)).or_default().extend(why);
        }
    }
    let listed = |(name, field): &(&str, String)| {
        UNSEEN.iter().any(|(known, _)| known == field || *known == format!("{name} {field}"))
    };
    let mut wrong = Vec::new();
    for ((name, field), why) in unseen.iter().filter(|(at, _)| !listed(at)) {
        if !why.iter().any(|w| w == "differs") {
            wrong.push(format!("{name}: no result shows `{field}`:\n{}", why.join("\n")));
        }
        let equal = why.iter().filter(|w| w.ends_with("are equal") && !SAME.iter().any(|s| w.contains(s)));
        wrong.extend(equal.cloned());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

/// No two primitives of the list are equal, and each equals a second copy of itself.
#[test]
fn all_of_the_list_are_two() {
    for (i, one) in PRIMITIVES.iter().enumerate() {
        for (k, two) in PRIMITIVES.iter().enumerate() {
            let (one, two) = ((one.example)().0, (two.example)().0);
            assert_eq!(*one == *two, i == k, "{} and {}", one.key(), two.key());
        }
    }
}

/// Primitives with an output sharding are the same operation with another sharding, except for
/// those that state it in their own way.
#[test]
fn another_sharding_may_be_asked_of_the_same_operation() {
    let out = p!["X"];
    let mut asked = Vec::new();
    for entry in PRIMITIVES {
        let plain = (entry.example)().0;
        let Some(other) = plain.with_out_sharding(out) else {
            assert!(
                plain.constraint().is_some() || plain.out_sharding().is_none() || entry.family == "creation",
                "{}",
                plain.key()
            );
            continue;
        };
        assert_eq!((other.name(), other.out_sharding()), (plain.name(), Some(out)), "{}", plain.key());
        let alike = other.with_out_sharding(p![]) == plain.with_out_sharding(p![]);
        assert!(alike && *other != *plain, "{}", plain.key());
        asked.push(entry.name);
    }
    for name in ["dot_general", "reduce_sum", "reshape", "gather", "conv_general_dilated"] {
        assert!(asked.contains(&name), "{name}: {asked:?}");
    }
}

/// The maximum and the minimum of bools are different operations, and differ from a sum.
#[test]
fn extremes_of_bools() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let x = Array::from([true, false]);
    let greatest = shard_map(&mesh, p!["X"], p![], |x: &Array| x.pmax("X"));
    let least = shard_map(&mesh, p!["X"], p![], |x: &Array| x.pmin("X"));
    assert_eq!(greatest.call(&x)?.to_vec::<bool>()?, [true]);
    assert_eq!(least.call(&x)?.to_vec::<bool>()?, [false]);
    let (greatest, least) = (jit(move |x: &Array| greatest.call(x)), jit(move |x: &Array| least.call(x)));
    assert_eq!(greatest.call(&x)?.to_vec::<bool>()?, [true]);
    assert_eq!(least.call(&x)?.to_vec::<bool>()?, [false]);
    let (greatest, least) = (greatest.trace(&x)?.to_string(), least.trace(&x)?.to_string());
    assert!(greatest.contains("pmax") && least.contains("pmin"), "{greatest}\n{least}");
    Ok(())
}
