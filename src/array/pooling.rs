//! Reductions of windows, and pooling.

use super::windows::{Padding, lie};
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::ops::elementwise::Binary;
use crate::ops::reduce::Reduction;
use crate::ops::windows::{ReduceWindow, Windows};
use crate::program::Call;
use crate::sharding::Spec;
use crate::trace::apply1;
use crate::types::{ArrayType, Scalar};
use std::sync::Arc;

/// How windows are placed: `x.window_max_with([2, 2], WindowOptions::default().strides([2, 2]))`. Lists have an entry for each size of the window.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WindowOptions {
    /// From one window to the next; else 1, of pools the window's size.
    pub strides: Option<Vec<usize>>,
    /// How far windows reach beyond the array.
    pub padding: Padding,
    /// From one step of a window to the next; else 1.
    pub dilation: Option<Vec<usize>>,
    /// How far apart the array's elements are set first; else 1. There is nothing between them.
    pub base_dilation: Option<Vec<usize>>,
    /// How the result is sharded; else by the rules.
    pub out: Option<Spec>,
}

impl WindowOptions {
    /// The same with these strides.
    ///
    /// ```
    /// use atmesh::{WindowOptions, prelude::*};
    /// let how = WindowOptions::default().strides([2]);
    /// assert_eq!(Array::from([1, 2, 3, 4]).window_sum_with([2], how).to_vec::<i32>()?, [3, 7]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn strides(self, strides: impl Into<Vec<usize>>) -> WindowOptions {
        WindowOptions { strides: Some(strides.into()), ..self }
    }
    /// The same with this padding: no element is there.
    ///
    /// ```
    /// use atmesh::{Padding, WindowOptions, prelude::*};
    /// let how = WindowOptions::default().padding(Padding::Same);
    /// assert_eq!(Array::from([-3, -2, -1]).window_max_with([3], how).to_vec::<i32>()?, [-2, -1, -1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn padding(self, padding: impl Into<Padding>) -> WindowOptions {
        WindowOptions { padding: padding.into(), ..self }
    }
    /// The same with a window's steps so far apart.
    ///
    /// ```
    /// use atmesh::{WindowOptions, prelude::*};
    /// let how = WindowOptions::default().dilation([2]);
    /// assert_eq!(Array::from([1, 2, 3, 4]).window_sum_with([2], how).to_vec::<i32>()?, [4, 6]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn dilation(self, dilation: impl Into<Vec<usize>>) -> WindowOptions {
        WindowOptions { dilation: Some(dilation.into()), ..self }
    }
    /// The same with the array's elements set so far apart first.
    pub fn base_dilation(self, dilation: impl Into<Vec<usize>>) -> WindowOptions {
        WindowOptions { base_dilation: Some(dilation.into()), ..self }
    }
    /// The same; the result is sharded so.
    pub fn out(self, out: Spec) -> WindowOptions {
        WindowOptions { out: Some(out), ..self }
    }
}

macro_rules! reductions {
    ($($name:ident $with:ident $kind:ident: $what:literal, $takes:literal, $of:literal => $is:literal;)*) => {
        /// # Reductions of windows
        impl Array { $(
            #[doc = concat!($what, " of each window: `window` has its size along each dimension, and there is one at each place where it is all inside.")]
            ///
            #[doc = concat!("Elements are ", $takes, ". The result is sharded as the array is; where its windows reach into a neighbour's part, that much is exchanged once, corners with it.")]
            /// Errors: sizes that are 0 or not one for each dimension, a split dimension of the result that its axes do not divide.
            ///
            /// ```
            /// use atmesh::prelude::*;
            #[doc = concat!("let y = Array::from(", $of, ").", stringify!($name), "([2]);")]
            #[doc = concat!("assert_eq!(y.to_string(), \"", $is, "\");")]
            /// ```
            #[track_caller]
            pub fn $name(&self, window: impl AsRef<[usize]>) -> Array {
                let call = Call::here(stringify!($name)).twin(concat!("x.", stringify!($with), "(window, how.out({}))"));
                self.windowed(Reduction::$kind, window.as_ref(), &WindowOptions::default(), call)
            }
            #[doc = concat!("[`Array::", stringify!($name), "`] with strides, padding, dilations or the result's sharding chosen.")]
            ///
            /// ```
            /// use atmesh::{WindowOptions, prelude::*};
            #[doc = concat!("let y = Array::from(", $of, ").", stringify!($with), "([2], WindowOptions::default().strides([4]));")]
            #[doc = concat!("assert_eq!(y.to_string(), Array::from(", $of, ").", stringify!($name), "([2]).slice(ix![..1]).to_string());")]
            /// ```
            #[track_caller]
            pub fn $with(&self, window: impl AsRef<[usize]>, options: WindowOptions) -> Array {
                let call = Call::here(stringify!($with)).twin(concat!("x.", stringify!($with), "(window, how.out({}))"));
                self.windowed(Reduction::$kind, window.as_ref(), &options, call)
            }
        )* }
    };
}

reductions! {
    window_sum window_sum_with Sum: "The sum", "numbers", "[1, 2, 3]" => "[3 5]";
    window_prod window_prod_with Prod: "The product", "numbers", "[1, 2, 3]" => "[2 6]";
    window_max window_max_with Max: "The greatest element", "numbers; a NaN is the greatest", "[1, 3, 2]" => "[3 3]";
    window_min window_min_with Min: "The least element", "numbers; a NaN is the least", "[1, 3, 2]" => "[1 2]";
    window_and window_and_with And: "The conjunction", "bools, or integers bit by bit", "[true, true, false]" => "[ True False]";
    window_or window_or_with Or: "The disjunction", "bools, or integers bit by bit", "[true, false, false]" => "[ True False]";
}

impl Array {
    fn windowed(&self, kind: Reduction, window: &[usize], options: &WindowOptions, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match over(ty, window, options) {
            Ok(over) => apply1(Arc::new(ReduceWindow { kind, over, out: options.out }), &[self.into()], call),
            Err(fault) => self.refuse(fault, call),
        }
    }
    /// The greatest element of each window over the last dimensions, as many as `window` has sizes, one window behind the other:
    /// `images.max_pool([2, 2])` of `[batch, features, height, width]`.
    ///
    /// Its gradient goes to the first of the greatest elements. The result is sharded as the array is; where windows reach into a
    /// neighbour's part, that much is exchanged. Errors: as of [`Array::window_max`].
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1.0f32, 2.0, 5.0, 3.0], [4.0, 0.0, 1.0, 1.0]]);
    /// assert_eq!(x.max_pool([2, 2]).to_vec::<f32>()?, [4.0, 5.0]);
    /// let g = grad(&x, |x| x.max_pool([2, 2]).sum(..));
    /// assert_eq!(g.to_vec::<f32>()?, [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn max_pool(&self, window: impl AsRef<[usize]>) -> Array {
        let call = Call::here("max_pool").twin("x.max_pool_with(window, how.out({}))");
        self.pooled(Reduction::Max, window.as_ref(), &WindowOptions::default(), call)
    }
    /// [`Array::max_pool`] with strides, padding, dilations or the result's sharding chosen.
    ///
    /// ```
    /// use atmesh::{Padding, WindowOptions, prelude::*};
    /// let how = WindowOptions::default().strides([1]).padding(Padding::Same);
    /// assert_eq!(Array::from([1, 3, 2]).max_pool_with([2], how).to_vec::<i32>()?, [3, 3, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn max_pool_with(&self, window: impl AsRef<[usize]>, options: WindowOptions) -> Array {
        let call = Call::here("max_pool_with").twin("x.max_pool_with(window, how.out({}))");
        self.pooled(Reduction::Max, window.as_ref(), &options, call)
    }
    /// The mean of each window over the last dimensions, as many as `window` has sizes, one window behind the other. Elements are floats;
    /// padding is no element, so that at the edges fewer are averaged.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1.0f32, 2.0, 5.0, 3.0], [4.0, 1.0, 1.0, 3.0]]);
    /// assert_eq!(x.avg_pool([2, 2]).to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn avg_pool(&self, window: impl AsRef<[usize]>) -> Array {
        let call = Call::here("avg_pool").twin("x.avg_pool_with(window, how.out({}))");
        self.pooled(Reduction::Sum, window.as_ref(), &WindowOptions::default(), call)
    }
    /// [`Array::avg_pool`] with strides, padding, dilations or the result's sharding chosen.
    ///
    /// ```
    /// use atmesh::{Padding, WindowOptions, prelude::*};
    /// let how = WindowOptions::default().strides([1]).padding(Padding::Same);
    /// let y = Array::from([1.0f32, 3.0, 2.0]).avg_pool_with([2], how);
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, 2.5, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn avg_pool_with(&self, window: impl AsRef<[usize]>, options: WindowOptions) -> Array {
        let call = Call::here("avg_pool_with").twin("x.avg_pool_with(window, how.out({}))");
        self.pooled(Reduction::Sum, window.as_ref(), &options, call)
    }
    fn pooled(&self, kind: Reduction, window: &[usize], options: &WindowOptions, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let lead = match ty.rank().checked_sub(window.len()) {
            Some(lead) => lead,
            None => {
                let (n, rank) = (window.len(), ty.rank());
                let fault = Fault::new(
                    ErrorKind::Shape,
                    format!("the window has {n} sizes, and the array {rank} dimensions"),
                );
                return self.refuse(fault.help("give a size for each of the last dimensions"), call);
            }
        };
        if kind == Reduction::Sum && !ty.dtype.is_float() {
            let fault = Fault::new(
                ErrorKind::Dtype,
                format!("elements of type {} have no mean of their type", ty.dtype),
            );
            return self.refuse(fault.help("convert the array: `.astype(F32)`"), call);
        }
        let whole = |list: &[usize], one: usize| [&vec![one; lead][..], list].concat();
        let padding = match &options.padding {
            Padding::Each(list) => Padding::Each([&vec![(0, 0); lead][..], list].concat()),
            word => word.clone(),
        };
        let options = WindowOptions {
            strides: Some(whole(options.strides.as_deref().unwrap_or(window), 1)),
            padding,
            dilation: options.dilation.as_ref().map(|list| whole(list, 1)),
            base_dilation: options.base_dilation.as_ref().map(|list| whole(list, 1)),
            out: options.out,
        };
        let window = whole(window, 1);
        let made = self.windowed(kind, &window, &options, call);
        if kind != Reduction::Sum {
            return made;
        }
        let all = window.iter().product::<usize>();
        let inside = options.padding == Padding::Valid && options.base_dilation.is_none();
        if inside {
            return made.with(Binary::Div, all as f64, call);
        }
        let ones = apply1(prims::full(super::creation::plain(ty), Scalar::one(ty.dtype)), &[], call);
        made.with(Binary::Div, ones.windowed(kind, &window, &options, call), call)
    }
}

fn over(ty: &ArrayType, window: &[usize], options: &WindowOptions) -> Result<Windows, Fault> {
    let (n, rank) = (window.len(), ty.rank());
    if n != rank {
        return Err(Fault::new(
            ErrorKind::Shape,
            format!("the window has {n} sizes, and the array {rank} dimensions"),
        )
        .help("give a size for each dimension: 1 where a window is one element"));
    }
    let lists = [&options.strides, &options.dilation, &options.base_dilation];
    let windows = lie(&ty.shape, window, &options.padding, lists)?;
    Ok(Windows { taps: window.into(), windows })
}
