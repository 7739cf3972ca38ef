//! Convolutions, and the window geometry that convolutions and window reductions share.
//!
//! A grouped convolution splits the grouped dimension of both operands in two, applies one
//! primitive with a batch dimension, and merges the result's feature dimension again.

use super::operand::{self, Term};
use super::{Array, prims};
use crate::api::trace::apply1;
use crate::core::{
    ArrayType, Axes, DType, ErrorKind, Fault, Precision, Shape, Spec, types::default_matmul_precision,
};
use crate::ir::ops::windows::{Conv, Window, dilated_size};
use crate::ir::program::{CallSite, Prim, UserOperand};
use std::borrow::Borrow;
use std::sync::Arc;

/// The padding of a window operation: how far windows extend beyond the array.
///
/// Padded positions count as zero in a convolution, and are skipped in a reduction.
///
/// ```
/// use atmesh::prelude::*;
/// let (x, w) = (Array::ones([1, 1, 5]), Array::ones([1, 1, 3]));
/// let shape = |padding| x.conv_with(&w, ConvOptions::default().padding(padding)).shape();
/// assert_eq!(shape(Padding::Valid)?, [1, 1, 3]);
/// assert_eq!(shape(Padding::Same)?, [1, 1, 5]);
/// assert_eq!(shape([(2, 0)].into())?, [1, 1, 5]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// No padding: every window is inside the array.
    #[default]
    Valid,
    /// Padding to ⌈n / stride⌉ windows for size n; an odd amount is larger at the end.
    Same,
    /// Padding to ⌈n / stride⌉ windows for size n; an odd amount is larger at the start.
    SameLower,
    /// Low and high padding for each dimension; negative padding removes elements.
    Each(Vec<(i64, i64)>),
}

conversions! { Padding:
    [const N: usize] [(i64, i64); N] => |each| Padding::Each(each.into());
    [] Vec<(i64, i64)> => |each| Padding::Each(each);
}

/// Options of a convolution: strides, padding, dilations, layout, groups, sharding and dtype.
///
/// They are built by chaining:
/// `x.conv_with(&w, ConvOptions::default().strides([2, 2]).padding(Padding::Same))`. Lists have one
/// entry per spatial dimension, in the order of the array's dimensions.
///
/// ```
/// use atmesh::prelude::*;
/// let (x, w) = (Array::ones([1, 1, 8, 8]), Array::ones([1, 1, 3, 3]));
/// let options = ConvOptions::default().strides([2, 2]).padding(Padding::Same);
/// assert_eq!(x.conv_with(&w, options).shape()?, [1, 1, 4, 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConvOptions {
    /// The distance between windows, in elements; `None` means 1.
    pub strides: Option<Vec<usize>>,
    /// How far windows extend beyond the array. Defaults to [`Padding::Valid`].
    pub padding: Padding,
    /// The distance between the elements that adjacent filter taps read; `None` means 1.
    pub dilation: Option<Vec<usize>>,
    /// The distance between the array's elements before windows are applied; `None` means 1.
    ///
    /// Positions between the elements count as zero.
    pub base_dilation: Option<Vec<usize>>,
    /// The dimension names of array, filter and result; `None` means `["NCHW", "OIHW", "NCHW"]`.
    pub layout: Option<[String; 3]>,
    /// The number of feature groups, each with its own filters. Defaults to 1.
    pub groups: usize,
    /// The number of batch groups, each with its own filters. Defaults to 1.
    pub batch_groups: usize,
    /// The result's sharding; `None` if it follows from the operands.
    pub out_sharding: Option<Spec>,
    /// The accumulation and result type (JAX's `preferred_element_type`).
    ///
    /// `None` means the operands' type.
    pub accum_dtype: Option<DType>,
    /// The precision of float32 products on XLA's accelerators.
    ///
    /// `None` means the process's [default](crate::default_matmul_precision).
    pub precision: Option<Precision>,
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
            out_sharding: None,
            accum_dtype: None,
            precision: None,
        }
    }
}

impl ConvOptions {
    setters! {
        /// Sets the strides, one per spatial dimension.
        ///
        /// ```
        /// use atmesh::{ConvOptions, Padding, prelude::*};
        /// let (x, w) = (Array::ones([1, 1, 8, 8]), Array::ones([1, 1, 3, 3]));
        /// let how = ConvOptions::default().strides([2, 4]).padding(Padding::Same);
        /// assert_eq!(x.conv_with(&w, how).shape()?, [1, 1, 4, 2]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn strides(strides: impl Into<Vec<usize>>) = strides: Some(strides.into());
        /// Sets the padding.
        ///
        /// ```
        /// use atmesh::{ConvOptions, prelude::*};
        /// let (x, w) = (Array::ones([1, 1, 3]), Array::ones([1, 1, 3]));
        /// let y = x.conv_with(&w, ConvOptions::default().padding([(1, 1)]));
        /// assert_eq!(y.to_vec::<f32>()?, [2.0, 3.0, 2.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn padding(padding: impl Into<Padding>) = padding: padding.into();
        /// Sets the distance between the elements that adjacent filter taps read.
        ///
        /// ```
        /// use atmesh::{ConvOptions, prelude::*};
        /// let (x, w) = (Array::arange_of(F32.array_type([6]), 0, 1).reshape([1, 1, 6]),
        ///     Array::ones([1, 1, 3]));
        /// let y = x.conv_with(&w, ConvOptions::default().dilation([2]));
        /// assert_eq!(y.to_vec::<f32>()?, [0.0 + 2.0 + 4.0, 1.0 + 3.0 + 5.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias = "rhs_dilation")]
        pub fn dilation(dilation: impl Into<Vec<usize>>) = dilation: Some(dilation.into());
        /// Sets the distance between the array's elements before windows are applied.
        ///
        /// [`Array::conv_transpose`] uses it for its strides.
        #[doc(alias = "lhs_dilation")]
        pub fn base_dilation(dilation: impl Into<Vec<usize>>) = base_dilation: Some(dilation.into());
        /// Sets the order of the dimensions of array, filter and result.
        ///
        /// `N` is the batch, `C` features, `O` and `I` the filter's output and input features;
        /// other letters are spatial dimensions.
        ///
        /// ```
        /// use atmesh::{ConvOptions, prelude::*};
        /// let (x, w) = (Array::ones([2, 8, 8, 3]), Array::ones([3, 3, 3, 16]));
        /// let how = ConvOptions::default().layout("NHWC", "HWIO", "NHWC");
        /// assert_eq!(x.conv_with(&w, how).shape()?, [2, 6, 6, 16]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias = "dimension_numbers")]
        pub fn layout(array: &str, filter: &str, result: &str)
            = layout: Some([array.into(), filter.into(), result.into()]);
        /// Sets the number of feature groups; group k of the output uses group k of the input
        /// features.
        ///
        /// With as many groups as features, each feature has its own filter ("depthwise").
        ///
        /// ```
        /// use atmesh::{ConvOptions, prelude::*};
        /// let x = Array::from([1.0f32, 2.0, 3.0, 4.0]).reshape([1, 2, 2]);
        /// let w = Array::from([1.0f32, 1.0, 1.0, -1.0]).reshape([2, 1, 2]);
        /// let y = x.conv_with(&w, ConvOptions::default().groups(2));
        /// assert_eq!(y.to_vec::<f32>()?, [3.0, -1.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias = "feature_group_count")]
        pub fn groups(groups: usize) = groups: groups;
        /// Sets the number of batch groups; group k of the output features uses group k of the
        /// batch.
        #[doc(alias = "batch_group_count")]
        pub fn batch_groups(batch_groups: usize) = batch_groups: batch_groups;
        /// Sets the result's sharding.
        pub fn out_sharding(out: Spec) = out_sharding: Some(out);
        /// Sets the element type of the accumulation and of the result.
        #[doc(alias = "preferred_element_type")]
        pub fn accum_dtype(dtype: DType) = accum_dtype: Some(dtype);
        /// Sets the precision of float32 products on XLA's accelerators.
        pub fn precision(precision: Precision) = precision: Some(precision);
    }
}

/// The dimension numbers of an operand or result of a convolution.
#[derive(Clone, Debug)]
struct ConvDims {
    /// The batch dimension; for the filter, the output-feature dimension.
    batch: usize,
    /// The feature dimension; for the filter, the input-feature dimension.
    features: usize,
    /// The spatial dimensions, in the order of the array's layout.
    spatial: Vec<usize>,
}

/// Returns a shape error with this message.
fn shape_fault(message: impl Into<String>) -> Fault {
    Fault::new(ErrorKind::Shape, message)
}

/// Returns the dimension numbers of array, filter and result.
///
/// Names must have one distinct letter per dimension, and the same spatial letters.
fn layout_dims(layout: &Option<[String; 3]>, rank: usize) -> Result<[ConvDims; 3], Fault> {
    let Some(names) = layout else {
        return Ok([(); 3].map(|()| ConvDims { batch: 0, features: 1, spatial: (2..rank).collect() }));
    };
    let help = "name each dimension by a letter, spatial ones alike: `.layout(\"NHWC\", \"HWIO\", \"NHWC\")`";
    let mut spatial: Option<Vec<char>> = None;
    let mut dims = Vec::new();
    for (name, [first, features]) in names.iter().zip([['N', 'C'], ['O', 'I'], ['N', 'C']]) {
        let letters: Vec<char> = name.chars().collect();
        if letters.len() != rank {
            let (m, n) = (letters.len(), rank);
            return Err(fault!(Shape, "the layout {name} names {m} dimensions, and there are {n}").help(help));
        }
        if let Some(twice) = letters.iter().enumerate().find(|(k, c)| letters[..*k].contains(c)) {
            return Err(fault!(Shape, "the layout {name} names {} twice", twice.1).help(help));
        }
        let at = |c: char| letters.iter().position(|l| *l == c);
        let (Some(one), Some(two)) = (at(first), at(features)) else {
            return Err(fault!(Shape, "the layout {name} has no {first} or no {features}").help(help));
        };
        let others: Vec<char> = letters.iter().copied().filter(|c| *c != first && *c != features).collect();
        let order = spatial.get_or_insert(others);
        let Some(list) = order.iter().map(|c| at(*c)).collect::<Option<Vec<usize>>>() else {
            let message = format!("the layout {name} has other spatial dimensions than {}", names[0]);
            return Err(shape_fault(message).help(help));
        };
        dims.push(ConvDims { batch: one, features: two, spatial: list });
    }
    <[ConvDims; 3]>::try_from(dims).map_err(|_| fault!(Shape, "a layout has three names"))
}

/// Returns one entry per dimension; `None` becomes all 1, a wrong length is an error.
fn per_dim(what: &str, list: &Option<Vec<usize>>, n: usize) -> Result<Vec<usize>, Fault> {
    let list = list.clone().unwrap_or_else(|| vec![1; n]);
    if list.len() != n {
        let m = list.len();
        return Err(fault!(Shape, "there are {m} {what} for {n} dimensions that windows move over")
            .help("give one for each"));
    }
    Ok(list)
}

/// Returns the window parameters of each dimension, for an array of `sizes` and a window of `taps`.
///
/// `lists` are strides, dilations and base dilations.
pub(super) fn window_geometry(
    sizes: &[usize],
    taps: &[usize],
    padding: &Padding,
    lists: [&Option<Vec<usize>>; 3],
) -> Result<Vec<Window>, Fault> {
    let n = sizes.len();
    let [strides, dilation, base] = lists;
    let (strides, dilation) = (per_dim("strides", strides, n)?, per_dim("dilations", dilation, n)?);
    let base = per_dim("dilations of the array", base, n)?;
    if let Padding::Each(list) = padding
        && list.len() != n
    {
        let m = list.len();
        return Err(fault!(Shape, "there are {m} paddings for {n} dimensions that windows move over")
            .help("give the padding before and after for each: `[(1, 1), (0, 2)]`"));
    }
    let mut all = Vec::with_capacity(n);
    for k in 0..n {
        let mut w = Window {
            stride: strides[k],
            window_dilation: dilation[k],
            base_dilation: base[k],
            ..Window::default()
        };
        match padding {
            Padding::Valid => {}
            Padding::Each(list) => (w.padding_low, w.padding_high) = list[k],
            Padding::Same | Padding::SameLower => {
                let (n, s) = (sizes[k] as i128, w.stride.max(1) as i128);
                let more = ((n + s - 1) / s - 1) * s + dilated_size(taps[k], w.window_dilation) - n;
                let more = more.clamp(0, i128::from(i64::MAX)) as i64;
                w.padding_low = if *padding == Padding::Same { more / 2 } else { more - more / 2 };
                w.padding_high = more - w.padding_low;
            }
        }
        all.push(w);
    }
    Ok(all)
}

/// # Convolutions
impl Array {
    forward! {
        /// Convolves the array with the filter `w`, without padding and with stride 1.
        ///
        /// The array has shape `[batch, features, …]`, the filter
        /// `[output features, input features, …]`. The filter is not flipped (this is a
        /// cross-correlation, as in JAX).
        ///
        /// The array's batch and spatial dimensions may be sharded, and the result is sharded like
        /// them. Each device exchanges a halo with its neighbours once, corners included: the
        /// filter's size minus one along each sharded dimension. The filter's spatial dimensions
        /// must be unsharded; if its output features are sharded, so are the result's. If the
        /// summed features are sharded in both operands, the result's sharding is ambiguous: use
        /// [`Array::conv_to`].
        ///
        /// It is an error if the operands differ in rank or element type, if feature counts do not
        /// match, or if a sharded dimension of the result is not divisible by the size of its axes.
        /// [`Array::conv_with`] takes strides, padding, dilations, layouts and groups.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::arange_of(F32.array_type([8]), 0, 1).reshape([1, 1, 8]);
        /// let edges = Array::from([-1.0f32, 1.0, 0.0]).reshape([1, 1, 3]);
        /// assert_eq!(x.conv(&edges).to_vec::<f32>()?, [1.0; 6]);
        /// let split = x.put(&mesh, p![_, _, "X"]);
        /// assert_eq!(type_of(split.conv(&edges)), "float32[1,1,6@X]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn conv(w: impl Borrow<Array>)
            = conv_at(w.borrow(), &ConvOptions::default()), or "x.conv_to(&w, {})";
        /// Computes [`Array::conv`] with the result sharded as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::ones([2, 4, 8]).put(&mesh, p![_, "X"]);
        /// let w = Array::ones([6, 4, 3]).put(&mesh, p![_, "X"]);
        /// assert_eq!(type_of(x.conv_to(&w, p!["X", _, _])), "float32[2@X,6,6]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn conv_to(w: impl Borrow<Array>, out: Spec)
            = conv_at(w.borrow(), &ConvOptions::default().out_sharding(out));
        /// Computes [`Array::conv`] with options, such as strides, padding, dilations and groups.
        ///
        /// With low padding `low`, the result at window j is the sum over filter taps t of
        /// `x[stride·j + dilation·t − low] · w[t]`, where elements outside of the array are zero. A
        /// spatial dimension of size n with k filter taps gives
        /// `(n + low + high − dilation·(k−1) − 1) / stride + 1` windows, rounded down.
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
        #[doc(alias = "conv_general_dilated")]
        pub fn conv_with(w: impl Borrow<Array>, options: ConvOptions)
            = conv_at(w.borrow(), &options), or "x.conv_with(&w, how.out_sharding({}))";
        /// Computes a transposed convolution: dilates the array by the strides, then convolves it.
        ///
        /// It inverts the effect of strides on sizes: a dimension of size n becomes `n·stride` with
        /// [`Padding::Same`], and `n·stride + max(k − stride, 0)` with [`Padding::Valid`], for k
        /// filter taps. Explicit padding applies to the dilated array. The filter is not flipped,
        /// and its input-feature dimension matches the array's features. The transpose of a
        /// convolution, as in its gradient, needs a flipped filter: `w.flip(..)`.
        ///
        /// ```
        /// use atmesh::{ConvOptions, Padding, prelude::*};
        /// let (x, w) = (Array::from([1.0f32, 2.0]).reshape([1, 1, 2]), Array::ones([1, 1, 2]));
        /// let how = ConvOptions::default().strides([2]).padding(Padding::Valid);
        /// assert_eq!(x.conv_transpose_with(&w, how).to_vec::<f32>()?, [1.0, 1.0, 2.0, 2.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn conv_transpose_with(w: impl Borrow<Array>, options: ConvOptions)
            = conv_transpose_at(w.borrow(), options),
            or "x.conv_transpose_with(&w, how.out_sharding({}))";
        /// Computes a transposed convolution with strides 1: a full convolution, over all windows
        /// that touch the array.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let (x, w) = (Array::from([1.0f32, 2.0]).reshape([1, 1, 2]),
        ///     Array::from([1.0f32, 10.0]).reshape([1, 1, 2]));
        /// assert_eq!(x.conv_transpose(&w).to_vec::<f32>()?, [10.0, 21.0, 2.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn conv_transpose(w: impl Borrow<Array>)
            = conv_transpose_at(w.borrow(), ConvOptions::default());
    }
    /// Implements [`Array::conv_transpose`].
    fn conv_transpose_at(&self, w: &Array, options: ConvOptions, call: CallSite<'_>) -> Array {
        let [ta, tw] = ok_or_return!(operand::types([self, w]));
        let reject = |fault| operand::reject(fault, &operand_pair(self, w), call);
        if options.base_dilation.is_some() {
            let fault = fault!(Shape, "a transposed convolution dilates the array by its strides");
            return reject(fault.help("omit `base_dilation`, or use `conv_with`"));
        }
        if ta.rank() != tw.rank() || ta.rank() < 2 {
            return self.conv_at(w, &options, call);
        }
        let made = (|| {
            let [_, filter, _] = layout_dims(&options.layout, ta.rank())?;
            let n = filter.spatial.len();
            let (strides, dilation) =
                (per_dim("strides", &options.strides, n)?, per_dim("dilations", &options.dilation, n)?);
            let pad = |(k, d): (usize, &usize)| {
                let taps = dilated_size(tw.shape[*d], dilation[k]) as i64;
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
        let options = ok_or_return!(made, |fault| reject(fault));
        self.conv_at(w, &options, call)
    }
    /// Implements [`Array::conv`].
    pub(super) fn conv_at(&self, w: &Array, options: &ConvOptions, call: CallSite<'_>) -> Array {
        let [ta, tw] = ok_or_return!(operand::types([self, w]));
        self.with_resolved_out(options.out_sharding, call, |out_sharding| {
            match plan_conv(ta, tw, &ConvOptions { out_sharding, ..options.clone() }) {
                Ok(plan) => plan.apply(self, w, call),
                Err(fault) => operand::reject(fault, &operand_pair(self, w), call),
            }
        })
    }
}

/// The steps of a convolution: reshapes of the operands, one primitive, a reshape of the result.
struct ConvPlan {
    /// The operands, split into groups; `None` if there are no groups.
    /// The convolution primitive.
    operands: [Option<GroupedOperand>; 2],
    conv: Conv,
    /// The result's shape with merged groups, and its sharding; `None` if there are no groups.
    result: Option<(Shape, Option<Spec>)>,
}

/// An operand with one dimension split into groups.
/// The shape with the group dimension.
struct GroupedOperand {
    shape: Shape,
    /// The sharding of the reshaped operand; `None` if it follows from the rules for reshapes.
    sharding: Option<Spec>,
    /// The operand's dimension for each dimension of the shape.
    dims: Vec<usize>,
}

/// Splits dimension `d` into `groups` and the rest, which keeps `axes`.
fn split_groups(ty: &ArrayType, d: usize, groups: usize, axes: &Axes) -> GroupedOperand {
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
    GroupedOperand { shape: shape.into(), sharding: out, dims }
}

/// Returns the number of shards over `axes`.
fn num_shards(ty: &ArrayType, axes: &Axes) -> usize {
    ty.mesh.as_ref().map_or(1, |m| axes.iter().map(|a| m.extent(a)).product())
}

/// Returns the number of groups, which must divide the grouped dimensions.
fn check_groups(
    x: &ArrayType,
    w: &ArrayType,
    options: &ConvOptions,
    [xd, wd]: [&ConvDims; 2],
) -> Result<usize, Fault> {
    let (groups, batch_groups) = (options.groups, options.batch_groups);
    if groups == 0 || batch_groups == 0 {
        return Err(fault!(Shape, "there are 0 groups").help("use 1 group for no grouping"));
    }
    if groups > 1 && batch_groups > 1 {
        return Err(fault!(Shape, "{groups} groups of features and {batch_groups} of the batch at once")
            .help("group either the features or the batch"));
    }
    let n = groups.max(batch_groups);
    let grouped = if groups > 1 { (xd.features, "features") } else { (xd.batch, "batch") };
    for (k, ty, d, what) in [(0, x, grouped.0, grouped.1), (1, w, wd.batch, "output features")] {
        if !ty.shape[d].is_multiple_of(n) {
            let size = ty.shape[d];
            return Err(fault!(Shape, "{n} groups do not divide the {what}, {size}")
                .help("a number of groups that divides both the array's and the filter's features")
                .highlight_dim(k, d));
        }
    }
    Ok(n)
}

/// Checks that the padding of a convolution is explicit if the array is dilated, and removes no
/// more elements than there are.
fn check_conv_padding(
    options: &ConvOptions,
    windows: &[Window],
    dims: &[usize],
    sizes: &[usize],
) -> Result<(), Fault> {
    let word = matches!(options.padding, Padding::Same | Padding::SameLower | Padding::Valid);
    if word && options.base_dilation.as_ref().is_some_and(|list| list.iter().any(|d| *d > 1)) {
        return Err(fault!(Shape, "the padding of a dilated array must be given explicitly")
            .help("give the padding before and after: `.padding([(1, 1)])`, or use `conv_transpose_with`"));
    }
    for ((window, d), n) in windows.iter().zip(dims).zip(sizes) {
        let (low, high) = (i128::from(window.padding_low), i128::from(window.padding_high));
        if dilated_size(*n, window.base_dilation) + low + high < 0 {
            return Err(shape_fault(format!(
                "the negative padding {low} and {high} removes more elements than dimension {d} has"
            ))
            .help("remove fewer elements")
            .highlight_dim(0, *d));
        }
    }
    Ok(())
}

/// Checks that dimensions that would be merged again are not sharded in between.
fn check_grouped_sharding(parts: [(usize, &ArrayType, usize); 3]) -> Result<(), Fault> {
    let axes = |ty: &ArrayType, d: usize| Axes::from(ty.spec.dim(d));
    let sharded = |p: &(usize, &ArrayType, usize)| num_shards(p.1, &axes(p.1, p.2)) > 1;
    let Some((k, ty, d)) = parts.into_iter().find(sharded) else { return Ok(()) };
    let unsharded = ty.spec.padded(ty.rank()).with_dim(d, &Axes::none());
    let message = format!("grouped features must be unsharded, but dimension {d} of operand {k} is sharded");
    Err(fault!(Sharding, "{message} over {}", axes(ty, d))
        .help(format!("reshard operand {k}: `.reshard({unsharded})`"))
        .highlight_dim(k, d))
}

/// Returns the sharding of a result whose features are split into groups and features of a group.
fn grouped_sharding(spec: Spec, x: &ArrayType, features: usize, groups: usize) -> Spec {
    let mut entries: Vec<Axes> = (0..x.rank()).map(|d| Axes::from(spec.dim(d))).collect();
    entries.insert(features + 1, Axes::none());
    if !groups.is_multiple_of(num_shards(x, &entries[features])) {
        entries[features] = Axes::none();
    }
    spec.with_dims(entries)
}

/// Checks a convolution and plans its steps.
fn plan_conv(x: &ArrayType, w: &ArrayType, options: &ConvOptions) -> Result<ConvPlan, Fault> {
    let rank = x.rank();
    if rank != w.rank() || rank < 2 {
        let ranks = format!("the array has rank {rank} and the filter rank {}", w.rank());
        return Err(fault!(Shape, "{ranks}: both need rank 2 plus the number of spatial dimensions")
            .help("reshape one: `x.reshape([1, features, …])`, `w.reshape([out, in, …])`"));
    }
    let [xd, wd, yd] = layout_dims(&options.layout, rank)?;
    let (groups, n) = (options.groups, check_groups(x, w, options, [&xd, &wd])?);
    let sizes: Vec<usize> = xd.spatial.iter().map(|d| x.shape[*d]).collect();
    let taps: Vec<usize> = wd.spatial.iter().map(|d| w.shape[*d]).collect();
    let lists = [&options.strides, &options.dilation, &options.base_dilation];
    let windows = window_geometry(&sizes, &taps, &options.padding, lists)?;
    check_conv_padding(options, &windows, &xd.spatial, &sizes)?;
    let pair = |a: usize, b: usize| [vec![a], vec![b]];
    let plain = Conv {
        batch: [vec![], vec![]],
        contracting: pair(xd.features, wd.features),
        spatial: [xd.spatial.clone(), wd.spatial.clone()],
        windows,
        output_order: vec![],
        out_sharding: options.out_sharding,
        accum_dtype: options.accum_dtype,
        precision: options.precision.unwrap_or_else(default_matmul_precision),
    };
    // the primitive's result order: batch, spatial dimensions, output features
    let order = |lead: usize| {
        let mut order = vec![0; rank];
        (order[yd.batch], order[yd.features]) = (lead, lead + 1 + xd.spatial.len());
        yd.spatial.iter().enumerate().for_each(|(k, d)| order[*d] = lead + 1 + k);
        order
    };
    if n == 1 {
        let conv = Conv { output_order: order(0), ..plain };
        return Ok(ConvPlan { operands: [None, None], conv, result: None });
    }
    if options.out_sharding.is_none() {
        check_grouped_sharding([(0, x, xd.features), (1, w, wd.batch), (1, w, wd.features)])?;
    }
    let (d, kept) = match groups {
        1 => (xd.batch, Axes::from(x.spec.dim(xd.batch))),
        _ => (xd.features, Axes::none()),
    };
    let fits = (x.shape[d] / n).is_multiple_of(num_shards(x, &kept));
    if !fits && options.out_sharding.is_none() {
        let unsharded = x.spec.padded(rank).with_dim(d, &Axes::none());
        let message =
            format!("{kept} does not divide a group of the batch, {} of {}", x.shape[d] / n, x.shape[d]);
        return Err(Fault::new(ErrorKind::Sharding, message)
            .help(format!("reshard operand 0: `.reshard({unsharded})`"))
            .highlight_dim(0, d));
    }
    let cuts = [
        split_groups(x, d, n, &if fits { kept } else { Axes::none() }),
        split_groups(w, wd.batch, n, &Axes::none()),
    ];
    let behind =
        |list: &[usize], at: usize| -> Vec<usize> { list.iter().map(|d| d + usize::from(*d > at)).collect() };
    let mut joined = order(1);
    joined.insert(yd.features, 0);
    let out = options.out_sharding.map(|spec| grouped_sharding(spec, x, yd.features, n));
    let conv = Conv {
        batch: pair(d, wd.batch),
        contracting: if groups == 1 {
            [behind(&[xd.features], d), behind(&[wd.features], wd.batch)]
        } else {
            pair(xd.features + 1, behind(&[wd.features], wd.batch)[0])
        },
        spatial: [behind(&xd.spatial, d), behind(&wd.spatial, wd.batch)],
        output_order: joined,
        out_sharding: out,
        ..plain
    };
    let mut shape = vec![0; rank];
    shape[yd.batch] = if groups == 1 { x.shape[xd.batch] / n } else { x.shape[xd.batch] };
    shape[yd.features] = w.shape[wd.batch];
    for (k, e) in yd.spatial.iter().enumerate() {
        shape[*e] = conv.windows[k].num_windows(xd.spatial[k], sizes[k], taps[k])?;
    }
    Ok(ConvPlan { operands: cuts.map(Some), conv, result: Some((shape.into(), options.out_sharding)) })
}

impl ConvPlan {
    /// Applies the planned steps.
    fn apply(self, x: &Array, w: &Array, call: CallSite<'_>) -> Array {
        let conv: Prim = Arc::new(self.conv);
        let Some((shape, out)) = self.result else {
            return apply1(conv, &[x.into(), w.into()], call);
        };
        let describe = || operand::describe_all(&operand_pair(x, w));
        let mut cuts = Vec::with_capacity(2);
        let mut sources = Vec::with_capacity(2);
        for (k, (a, cut)) in [x, w].into_iter().zip(&self.operands).enumerate() {
            let (Some(cut), Ok(ty)) = (cut, a.type_ref()) else { return a.clone() };
            let source = UserOperand { index: k, ty: Some(ty), dims: None };
            cuts.push(apply1(
                prims::reshape(&cut.shape, cut.sharding),
                &[a.into()],
                call.intermediate().with_operands(&describe, &[source]),
            ));
            sources.push(UserOperand { index: k, ty: Some(ty), dims: Some(&cut.dims) });
        }
        let args = [(&cuts[0]).into(), (&cuts[1]).into()];
        let made = apply1(conv, &args, call.intermediate().with_operands(&describe, &sources));
        let join = call.intermediate().with_operands(&describe, &[]);
        apply1(prims::reshape(&shape, out), &[made.into()], join)
    }
}

/// Returns both arrays as operands.
fn operand_pair(a: &Array, b: &Array) -> [Term; 2] {
    [Term::Array(a.clone()), Term::Array(b.clone())]
}
