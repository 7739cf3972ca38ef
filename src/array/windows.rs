//! Windows: convolutions, and reductions of windows.

use super::operand::{self, Term};
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::mesh::Axes;
use crate::ops::windows::{Conv, Window, spread};
use crate::program::{Call, Prim, Source};
use crate::sharding::Spec;
use crate::trace::{apply1, carried, poison};
use crate::types::{ArrayType, DType, Shape};
use std::borrow::Borrow;
use std::sync::Arc;

/// How far windows reach beyond the array, where nothing is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// Not at all: windows are inside.
    #[default]
    Valid,
    /// So that there are as many windows as elements, divided by the stride; what is odd is behind.
    Same,
    /// As [`Padding::Same`]; what is odd is before.
    SameLower,
    /// How far before and behind, for each dimension; negative numbers leave elements out.
    Each(Vec<(i64, i64)>),
}

impl<const N: usize> From<[(i64, i64); N]> for Padding {
    fn from(each: [(i64, i64); N]) -> Padding {
        Padding::Each(each.into())
    }
}
impl From<Vec<(i64, i64)>> for Padding {
    fn from(each: Vec<(i64, i64)>) -> Padding {
        Padding::Each(each)
    }
}

/// How a convolution is made: `x.conv_with(&w, ConvOptions::default().strides([2, 2]).padding(Padding::Same))`.
///
/// Lists have an entry for each spatial dimension, in the order in which the array has them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConvOptions {
    /// From one window to the next; else 1.
    pub strides: Option<Vec<usize>>,
    /// How far windows reach beyond the array.
    pub padding: Padding,
    /// From one step of the filter to the next; else 1.
    pub dilation: Option<Vec<usize>>,
    /// How far apart the array's elements are set first; else 1. There is nothing between them.
    pub base_dilation: Option<Vec<usize>>,
    /// The names of the dimensions of array, filter and result; else `["NCHW", "OIHW", "NCHW"]`.
    pub layout: Option<[String; 3]>,
    /// How many groups the features are in, each with filters of its own.
    pub groups: usize,
    /// How many groups the batch is in, each with filters of its own.
    pub batch_groups: usize,
    /// How the result is sharded; else by the rules.
    pub out: Option<Spec>,
    /// The element type of the sums and of the result; else that of the operands.
    pub sums: Option<DType>,
}

impl Default for ConvOptions {
    fn default() -> ConvOptions {
        ConvOptions {
            strides: None,
            padding: Padding::Valid,
            dilation: None,
            base_dilation: None,
            layout: None,
            groups: 1,
            batch_groups: 1,
            out: None,
            sums: None,
        }
    }
}

impl ConvOptions {
    /// The same with these strides.
    ///
    /// ```
    /// use atmesh::{ConvOptions, Padding, prelude::*};
    /// let (x, w) = (Array::ones([1, 1, 8, 8]), Array::ones([1, 1, 3, 3]));
    /// let how = ConvOptions::default().strides([2, 4]).padding(Padding::Same);
    /// assert_eq!(x.conv_with(&w, how).shape()?, [1, 1, 4, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn strides(self, strides: impl Into<Vec<usize>>) -> ConvOptions {
        ConvOptions { strides: Some(strides.into()), ..self }
    }
    /// The same with this padding.
    ///
    /// ```
    /// use atmesh::{ConvOptions, prelude::*};
    /// let (x, w) = (Array::ones([1, 1, 3]), Array::ones([1, 1, 3]));
    /// let y = x.conv_with(&w, ConvOptions::default().padding([(1, 1)]));
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, 3.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn padding(self, padding: impl Into<Padding>) -> ConvOptions {
        ConvOptions { padding: padding.into(), ..self }
    }
    /// The same with the filter's steps so far apart.
    ///
    /// ```
    /// use atmesh::{ConvOptions, prelude::*};
    /// let (x, w) = (Array::arange_of(F32.of([6]), 0, 1).reshape([1, 1, 6]), Array::ones([1, 1, 3]));
    /// let y = x.conv_with(&w, ConvOptions::default().dilation([2]));
    /// assert_eq!(y.to_vec::<f32>()?, [0.0 + 2.0 + 4.0, 1.0 + 3.0 + 5.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn dilation(self, dilation: impl Into<Vec<usize>>) -> ConvOptions {
        ConvOptions { dilation: Some(dilation.into()), ..self }
    }
    /// The same with the array's elements set so far apart first: [`Array::conv_transpose`] does it by the strides.
    pub fn base_dilation(self, dilation: impl Into<Vec<usize>>) -> ConvOptions {
        ConvOptions { base_dilation: Some(dilation.into()), ..self }
    }
    /// The same with dimensions named so: N the batch, C features, O and I the filter's output and input features, other letters
    /// spatial.
    ///
    /// ```
    /// use atmesh::{ConvOptions, prelude::*};
    /// let (x, w) = (Array::ones([2, 8, 8, 3]), Array::ones([3, 3, 3, 16]));
    /// let how = ConvOptions::default().layout("NHWC", "HWIO", "NHWC");
    /// assert_eq!(x.conv_with(&w, how).shape()?, [2, 6, 6, 16]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn layout(self, array: &str, filter: &str, result: &str) -> ConvOptions {
        ConvOptions { layout: Some([array.into(), filter.into(), result.into()]), ..self }
    }
    /// The same with features in so many groups: group k of the result is made of group k of the array. As many groups as features:
    /// a filter for each feature ("depthwise").
    ///
    /// ```
    /// use atmesh::{ConvOptions, prelude::*};
    /// let x = Array::from([1.0f32, 2.0, 3.0, 4.0]).reshape([1, 2, 2]);
    /// let w = Array::from([1.0f32, 1.0, 1.0, -1.0]).reshape([2, 1, 2]);
    /// let y = x.conv_with(&w, ConvOptions::default().groups(2));
    /// assert_eq!(y.to_vec::<f32>()?, [3.0, -1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn groups(self, groups: usize) -> ConvOptions {
        ConvOptions { groups, ..self }
    }
    /// The same with the batch in so many groups: group k of the result's features is made of group k of the batch.
    pub fn batch_groups(self, batch_groups: usize) -> ConvOptions {
        ConvOptions { batch_groups, ..self }
    }
    /// The same; the result is sharded so.
    pub fn out(self, out: Spec) -> ConvOptions {
        ConvOptions { out: Some(out), ..self }
    }
    /// The same; sums and result are of this element type.
    pub fn sums(self, dtype: DType) -> ConvOptions {
        ConvOptions { sums: Some(dtype), ..self }
    }
}

/// Where the dimensions of an operand or of the result are: of the batch (of the filter: output features), of features (input
/// features), and the spatial ones.
#[derive(Clone, Debug)]
struct Dims {
    first: usize,
    features: usize,
    spatial: Vec<usize>,
}

fn shape_fault(message: impl Into<String>) -> Fault {
    Fault::new(ErrorKind::Shape, message)
}

/// The dimensions of array, filter and result, by their names.
fn named(layout: &Option<[String; 3]>, rank: usize) -> Result<[Dims; 3], Fault> {
    let Some(names) = layout else {
        return Ok([(); 3].map(|()| Dims { first: 0, features: 1, spatial: (2..rank).collect() }));
    };
    let help = "name each dimension by a letter, spatial ones alike: `.layout(\"NHWC\", \"HWIO\", \"NHWC\")`";
    let mut spatial: Option<Vec<char>> = None;
    let mut dims = Vec::new();
    for (name, [first, features]) in names.iter().zip([['N', 'C'], ['O', 'I'], ['N', 'C']]) {
        let letters: Vec<char> = name.chars().collect();
        if letters.len() != rank {
            let (m, n) = (letters.len(), rank);
            return Err(
                shape_fault(format!("the layout {name} names {m} dimensions, and there are {n}")).help(help)
            );
        }
        if let Some(twice) = letters.iter().enumerate().find(|(k, c)| letters[..*k].contains(c)) {
            return Err(shape_fault(format!("the layout {name} names {} twice", twice.1)).help(help));
        }
        let at = |c: char| letters.iter().position(|l| *l == c);
        let (Some(one), Some(two)) = (at(first), at(features)) else {
            return Err(shape_fault(format!("the layout {name} has no {first} or no {features}")).help(help));
        };
        let others: Vec<char> = letters.iter().copied().filter(|c| *c != first && *c != features).collect();
        let order = spatial.get_or_insert(others);
        let Some(list) = order.iter().map(|c| at(*c)).collect::<Option<Vec<usize>>>() else {
            let told = format!("the layout {name} has other spatial dimensions than {}", names[0]);
            return Err(shape_fault(told).help(help));
        };
        dims.push(Dims { first: one, features: two, spatial: list });
    }
    <[Dims; 3]>::try_from(dims).map_err(|_| shape_fault("a layout has three names"))
}

/// An entry for each of `n` dimensions, or 1s.
fn each(what: &str, list: &Option<Vec<usize>>, n: usize) -> Result<Vec<usize>, Fault> {
    let list = list.clone().unwrap_or_else(|| vec![1; n]);
    if list.len() != n {
        let m = list.len();
        return Err(shape_fault(format!("there are {m} {what} for {n} dimensions that windows move over"))
            .help("give one for each"));
    }
    Ok(list)
}

/// How windows are placed along dimensions of these sizes, with so many steps each.
pub(super) fn lie(
    sizes: &[usize],
    taps: &[usize],
    padding: &Padding,
    lists: [&Option<Vec<usize>>; 3],
) -> Result<Vec<Window>, Fault> {
    let n = sizes.len();
    let [strides, dilation, base] = lists;
    let (strides, dilation) = (each("strides", strides, n)?, each("dilations", dilation, n)?);
    let base = each("dilations of the array", base, n)?;
    if let Padding::Each(list) = padding
        && list.len() != n
    {
        let m = list.len();
        return Err(shape_fault(format!("there are {m} paddings for {n} dimensions that windows move over"))
            .help("give how far before and behind for each: `[(1, 1), (0, 2)]`"));
    }
    let mut all = Vec::with_capacity(n);
    for k in 0..n {
        let mut w = Window { stride: strides[k], dilation: dilation[k], base: base[k], ..Window::default() };
        match padding {
            Padding::Valid => {}
            Padding::Each(list) => (w.low, w.high) = list[k],
            Padding::Same | Padding::SameLower => {
                let (n, s) = (sizes[k] as i128, w.stride.max(1) as i128);
                let more = ((n + s - 1) / s - 1) * s + spread(taps[k], w.dilation) - n;
                let more = more.clamp(0, i128::from(i64::MAX)) as i64;
                w.low = if *padding == Padding::Same { more / 2 } else { more - more / 2 };
                w.high = more - w.low;
            }
        }
        all.push(w);
    }
    Ok(all)
}

/// # Convolutions
impl Array {
    /// The convolution with the filter `w`: `[batch, features, …]` with `[features out, features in, …]`, at each place where the filter
    /// is all inside. The filter is not turned round.
    ///
    /// The array's batch and spatial dimensions may be sharded, and the result is sharded as they are: what a device needs of its
    /// neighbours, the filter's size less one along each split dimension, is exchanged once, corners with it. The filter's spatial
    /// dimensions are unsharded; where its output features are split, so are the result's. Where features that are summed are split in
    /// both, the result's sharding is open: [`Array::conv_to`] takes it. Errors: operands of different rank or element type, features
    /// that do not fit, a split dimension of the result that its axes do not divide. [`Array::conv_with`] takes strides, padding,
    /// dilations, other orders of dimensions, groups.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange_of(F32.of([8]), 0, 1).reshape([1, 1, 8]);
    /// let edges = Array::from([-1.0f32, 1.0, 0.0]).reshape([1, 1, 3]);
    /// assert_eq!(x.conv(&edges).to_vec::<f32>()?, [1.0; 6]);
    /// let split = x.put(&mesh, p![_, _, "X"]);
    /// assert_eq!(type_of(split.conv(&edges)), "float32[1,1,6@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn conv(&self, w: impl Borrow<Array>) -> Array {
        self.conv_at(w.borrow(), &ConvOptions::default(), Call::here("conv").twin("x.conv_to(&w, {})"))
    }
    /// [`Array::conv`], sharded as `out` says.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::ones([2, 4, 8]).put(&mesh, p![_, "X"]);
    /// let w = Array::ones([6, 4, 3]).put(&mesh, p![_, "X"]);
    /// assert_eq!(type_of(x.conv_to(&w, p!["X", _, _])), "float32[2@X,6,6]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn conv_to(&self, w: impl Borrow<Array>, out: Spec) -> Array {
        self.conv_at(w.borrow(), &ConvOptions::default().out(out), Call::here("conv_to"))
    }
    /// [`Array::conv`] with strides, padding, dilations, an order of dimensions, groups, the result's sharding or the sums' element type
    /// chosen.
    ///
    /// With a `low` and `high` padding, strides and dilations, the result at window j is the sum over steps t of the filter of
    /// `x[stride·j + dilation·t − low] · w[t]`; beyond the array nothing is added. Along a spatial dimension of size n, with k steps, there
    /// are `(n + low + high − dilation·(k−1) − 1) / stride + 1` windows, rounded down.
    ///
    /// ```
    /// use atmesh::{ConvOptions, Padding, prelude::*};
    /// let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    /// let images = Array::ones([4, 8, 8, 3]).put(&mesh, p![_, "X", "Y", _]);
    /// let filter = Array::ones([3, 3, 3, 16]);
    /// let how = ConvOptions::default().layout("NHWC", "HWIO", "NHWC").padding(Padding::Same);
    /// assert_eq!(type_of(images.conv_with(&filter, how)), "float32[4,8@X,8@Y,16]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn conv_with(&self, w: impl Borrow<Array>, options: ConvOptions) -> Array {
        let call = Call::here("conv_with").twin("x.conv_with(&w, how.out({}))");
        self.conv_at(w.borrow(), &options, call)
    }
    /// The convolution with the filter `w` of the array with its elements set apart by the strides: it undoes what strides do to sizes, so
    /// that with [`Padding::Same`] a dimension of size n becomes one of `n·stride`, with [`Padding::Valid`] of
    /// `n·stride + max(k − stride, 0)`. Padding in numbers is that of the array set apart. The filter is not turned round, and its dimension of
    /// input features meets the array's features; for a convolution's transpose, which gradients take, turn it: `w.flip(..)`.
    ///
    /// ```
    /// use atmesh::{ConvOptions, Padding, prelude::*};
    /// let (x, w) = (Array::from([1.0f32, 2.0]).reshape([1, 1, 2]), Array::ones([1, 1, 2]));
    /// let how = ConvOptions::default().strides([2]).padding(Padding::Valid);
    /// assert_eq!(x.conv_transpose_with(&w, how).to_vec::<f32>()?, [1.0, 1.0, 2.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn conv_transpose_with(&self, w: impl Borrow<Array>, options: ConvOptions) -> Array {
        let call = Call::here("conv_transpose_with").twin("x.conv_transpose_with(&w, how.out({}))");
        self.conv_transpose_at(w.borrow(), options, call)
    }
    /// [`Array::conv_transpose_with`] of strides 1: every window that touches the array.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, w) = (Array::from([1.0f32, 2.0]).reshape([1, 1, 2]), Array::from([1.0f32, 10.0]).reshape([1, 1, 2]));
    /// assert_eq!(x.conv_transpose(&w).to_vec::<f32>()?, [10.0, 21.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn conv_transpose(&self, w: impl Borrow<Array>) -> Array {
        let call = Call::here("conv_transpose");
        self.conv_transpose_at(w.borrow(), ConvOptions::default(), call)
    }
    fn conv_transpose_at(&self, w: &Array, options: ConvOptions, call: Call<'_>) -> Array {
        let (Ok(ta), Ok(tw)) = (self.type_ref(), w.type_ref()) else {
            return carried([self, w].into_iter()).map_or_else(|| self.clone(), poison);
        };
        let refuse = |fault| operand::refuse(fault, &both(self, w), call);
        if options.base_dilation.is_some() {
            let fault =
                shape_fault("a transposed convolution sets the array's elements apart by its strides");
            return refuse(fault.help("leave `base_dilation` out, or use `conv_with`"));
        }
        if ta.rank() != tw.rank() || ta.rank() < 2 {
            return self.conv_at(w, &options, call);
        }
        let made = (|| {
            let [_, filter, _] = named(&options.layout, ta.rank())?;
            let n = filter.spatial.len();
            let (strides, dilation) =
                (each("strides", &options.strides, n)?, each("dilations", &options.dilation, n)?);
            let pad = |(k, d): (usize, &usize)| {
                let taps = spread(tw.shape[*d], dilation[k]) as i64;
                let s = strides[k] as i64;
                let all = taps + s - 2;
                match options.padding {
                    Padding::Valid => (taps - 1, all + (taps - s).max(0) - (taps - 1)),
                    _ => {
                        let odd = i64::from(options.padding != Padding::SameLower);
                        let low = if s > taps - 1 { taps - 1 } else { (all + odd) / 2 };
                        (low, all - low)
                    }
                }
            };
            let padding = match &options.padding {
                Padding::Each(list) => Padding::Each(list.clone()),
                _ => Padding::Each(filter.spatial.iter().enumerate().map(pad).collect()),
            };
            Ok(ConvOptions { strides: None, base_dilation: Some(strides), padding, ..options.clone() })
        })();
        match made {
            Ok(options) => self.conv_at(w, &options, call),
            Err(fault) => refuse(fault),
        }
    }
    fn conv_at(&self, w: &Array, options: &ConvOptions, call: Call<'_>) -> Array {
        let (Ok(ta), Ok(tw)) = (self.type_ref(), w.type_ref()) else {
            return carried([self, w].into_iter()).map_or_else(|| self.clone(), poison);
        };
        match planned(ta, tw, options) {
            Ok(plan) => plan.apply(self, w, call),
            Err(fault) => operand::refuse(fault, &both(self, w), call),
        }
    }
}

/// A convolution as it is made: the operands' dimensions of groups cut in two, a primitive, the result's joined.
struct Plan {
    /// For each operand its shape with groups, its sharding then where that is to be said, and the user's dimension of each dimension.
    operands: [Option<Cut>; 2],
    conv: Conv,
    /// The result's shape without groups, and its sharding.
    joined: Option<(Shape, Option<Spec>)>,
}

/// An operand with a dimension cut in two.
struct Cut {
    shape: Shape,
    /// Where it is sharded otherwise than the rules for reshapes say.
    out: Option<Spec>,
    /// The dimension of the operand that each dimension is, or is a part of.
    dims: Vec<usize>,
}

/// The operand with dimension d as `groups` and the rest of it, which keeps these axes.
fn cut(ty: &ArrayType, d: usize, groups: usize, axes: &Axes) -> Cut {
    let mut shape = ty.shape.to_vec();
    shape[d] = groups;
    shape.insert(d + 1, ty.shape[d] / groups);
    let dims: Vec<usize> =
        (0..ty.rank()).flat_map(|e| std::iter::repeat_n(e, 1 + usize::from(e == d))).collect();
    let out = (!ty.spec.dim(d).is_empty()).then(|| {
        let mut entries: Vec<Axes> = dims.iter().map(|e| Axes::from(ty.spec.dim(*e))).collect();
        (entries[d], entries[d + 1]) = (Axes::none(), axes.clone());
        ty.spec.with_dims(entries)
    });
    Cut { shape: shape.into(), out, dims }
}

fn ways(ty: &ArrayType, axes: &Axes) -> usize {
    ty.mesh.as_ref().map_or(1, |m| axes.iter().map(|a| m.extent(a)).product())
}

fn planned(x: &ArrayType, w: &ArrayType, options: &ConvOptions) -> Result<Plan, Fault> {
    let rank = x.rank();
    if rank != w.rank() || rank < 2 {
        let told = format!("the array has rank {rank} and the filter rank {}", w.rank());
        return Err(shape_fault(format!(
            "{told}: both have the same, 2 and the number of spatial dimensions"
        ))
        .help("reshape one: `x.reshape([1, features, …])`, `w.reshape([out, in, …])`"));
    }
    let [xd, wd, yd] = named(&options.layout, rank)?;
    let (groups, batch_groups) = (options.groups, options.batch_groups);
    if groups == 0 || batch_groups == 0 {
        return Err(shape_fault("there are 0 groups").help("1 group is all of it"));
    }
    if groups > 1 && batch_groups > 1 {
        return Err(shape_fault(format!(
            "{groups} groups of features and {batch_groups} of the batch at once"
        ))
        .help("group the one or the other"));
    }
    let n = groups.max(batch_groups);
    let grouped = if groups > 1 { (xd.features, "features") } else { (xd.first, "batch") };
    for (k, ty, d, what) in [(0, x, grouped.0, grouped.1), (1, w, wd.first, "output features")] {
        if !ty.shape[d].is_multiple_of(n) {
            let size = ty.shape[d];
            return Err(shape_fault(format!("{n} groups do not divide the {what}, {size}"))
                .help("a number of groups that divides both the array's and the filter's features")
                .dim(k, d));
        }
    }
    let sizes: Vec<usize> = xd.spatial.iter().map(|d| x.shape[*d]).collect();
    let taps: Vec<usize> = wd.spatial.iter().map(|d| w.shape[*d]).collect();
    let lists = [&options.strides, &options.dilation, &options.base_dilation];
    let windows = lie(&sizes, &taps, &options.padding, lists)?;
    let word = matches!(options.padding, Padding::Same | Padding::SameLower | Padding::Valid);
    if word && options.base_dilation.as_ref().is_some_and(|list| list.iter().any(|d| *d != 1)) {
        return Err(shape_fault("the padding of an array that is set apart is said in numbers")
            .help("say how far before and behind: `.padding([(1, 1)])`, or use `conv_transpose_with`"));
    }
    for ((window, d), n) in windows.iter().zip(&xd.spatial).zip(&sizes) {
        let (low, high) = (i128::from(window.low), i128::from(window.high));
        if spread(*n, window.base) + low + high < 0 {
            return Err(shape_fault(format!(
                "the padding {low} and {high} leaves out more than dimension {d} has"
            ))
            .help("leave out less")
            .dim(0, *d));
        }
    }
    let spatial = windows.len();
    let pair = |a: usize, b: usize| [vec![a], vec![b]];
    let plain = Conv {
        batch: [vec![], vec![]],
        contracting: pair(xd.features, wd.features),
        spatial: [xd.spatial.clone(), wd.spatial.clone()],
        windows,
        order: vec![],
        out: options.out,
        preferred: options.sums,
    };
    // the batch, the windows, the output features
    let order = |lead: usize| {
        let mut order = vec![0; rank];
        (order[yd.first], order[yd.features]) = (lead, lead + 1 + spatial);
        yd.spatial.iter().enumerate().for_each(|(k, d)| order[*d] = lead + 1 + k);
        order
    };
    if n == 1 {
        let conv = Conv { order: order(0), ..plain };
        return Ok(Plan { operands: [None, None], conv, joined: None });
    }
    let axes = |ty: &ArrayType, d: usize| Axes::from(ty.spec.dim(d));
    if options.out.is_none() {
        // what would be joined again is not split on the way
        let parts = [(0, x, xd.features), (1, w, wd.first), (1, w, wd.features)];
        if let Some((k, ty, d)) = parts.into_iter().find(|p| ways(p.1, &axes(p.1, p.2)) > 1) {
            let whole = ty.spec.padded(rank).with_dim(d, &Axes::none());
            let told = format!("features in groups are unsharded, and dimension {d} of operand {k} is split");
            return Err(Fault::new(ErrorKind::Sharding, format!("{told} over {}", axes(ty, d)))
                .help(format!("reshard operand {k}: `.reshard({whole})`"))
                .dim(k, d));
        }
    }
    let (d, kept) = match groups {
        1 => (xd.first, axes(x, xd.first)),
        _ => (xd.features, Axes::none()),
    };
    let fits = (x.shape[d] / n).is_multiple_of(ways(x, &kept));
    if !fits && options.out.is_none() {
        let whole = x.spec.padded(rank).with_dim(d, &Axes::none());
        let told =
            format!("{kept} does not divide a group of the batch, {} of {}", x.shape[d] / n, x.shape[d]);
        return Err(Fault::new(ErrorKind::Sharding, told)
            .help(format!("reshard operand 0: `.reshard({whole})`"))
            .dim(0, d));
    }
    let cuts = [cut(x, d, n, &if fits { kept } else { Axes::none() }), cut(w, wd.first, n, &Axes::none())];
    let behind =
        |list: &[usize], at: usize| -> Vec<usize> { list.iter().map(|d| d + usize::from(*d > at)).collect() };
    let mut joined = order(1);
    joined.insert(yd.features, 0);
    let out = options.out.map(|spec| {
        let mut entries: Vec<Axes> = (0..rank).map(|d| Axes::from(spec.dim(d))).collect();
        entries.insert(yd.features + 1, Axes::none());
        if !n.is_multiple_of(ways(x, &entries[yd.features])) {
            entries[yd.features] = Axes::none();
        }
        spec.with_dims(entries)
    });
    let conv = Conv {
        batch: pair(d, wd.first),
        contracting: if groups == 1 {
            [behind(&[xd.features], d), behind(&[wd.features], wd.first)]
        } else {
            pair(xd.features + 1, behind(&[wd.features], wd.first)[0])
        },
        spatial: [behind(&xd.spatial, d), behind(&wd.spatial, wd.first)],
        order: joined,
        out,
        ..plain
    };
    let mut shape = vec![0; rank];
    shape[yd.first] = if groups == 1 { x.shape[xd.first] / n } else { x.shape[xd.first] };
    shape[yd.features] = w.shape[wd.first];
    for (k, e) in yd.spatial.iter().enumerate() {
        shape[*e] = conv.windows[k].count(xd.spatial[k], sizes[k], taps[k])?;
    }
    Ok(Plan { operands: cuts.map(Some), conv, joined: Some((shape.into(), options.out)) })
}

impl Plan {
    fn apply(self, x: &Array, w: &Array, call: Call<'_>) -> Array {
        let conv: Prim = Arc::new(self.conv);
        let Some((shape, out)) = self.joined else {
            return apply1(conv, &[x.into(), w.into()], call);
        };
        let told = || operand::described(&both(x, w));
        let mut cuts = Vec::with_capacity(2);
        let mut sources = Vec::with_capacity(2);
        for (k, (a, cut)) in [x, w].into_iter().zip(&self.operands).enumerate() {
            let (Some(cut), Ok(ty)) = (cut, a.type_ref()) else { return a.clone() };
            let source = Source { number: k, ty: Some(ty), dims: None };
            cuts.push(apply1(
                prims::reshape(&cut.shape, cut.out),
                &[a.into()],
                call.step().on(&told, &[source]),
            ));
            sources.push(Source { number: k, ty: Some(ty), dims: Some(&cut.dims) });
        }
        let args = [(&cuts[0]).into(), (&cuts[1]).into()];
        let made = apply1(conv, &args, call.step().on(&told, &sources));
        let join = call.step().on(&told, &[]);
        apply1(prims::reshape(&shape, out), &[made.into()], join)
    }
}

fn both(a: &Array, b: &Array) -> [Term; 2] {
    [Term::Array(a.clone()), Term::Array(b.clone())]
}
