//! The names of operations, as types: messages print them.

#![allow(non_camel_case_types)]

/// Defines the names of the table of scalar functions, and these.
macro_rules! operations {
    (
        [$($other:ident)*]
        methods { $($(#[$doc:meta])* $v:ident $name:ident $takes:ident: $row:expr;)* }
        $($rest:tt)*
    ) => { operations! { $($name)* $($other)* } };
    ($($name:ident)*) => { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        pub struct $name;
    )* };
}
crate::scalar_functions! { operations
    rint nan_to_num is_finite is_nan is_inf reciprocal relu silu softplus gelu gelu_exact square
    prod max min mean var std logsumexp any all bit_and bit_or softmax log_softmax argmax argmin count_nonzero norm nansum nanprod
    nanmax nanmin nanmean nanvar nanstd var_ddof std_ddof
    sort argsort cumsum cumprod cummax cummin cumlogsumexp cumsum_reverse cumprod_reverse cummax_reverse
    cummin_reverse cumlogsumexp_reverse median quantile
    percentile cov corrcoef cholesky cholesky_upper inv expm det eigvalsh pinv matrix_rank
    real imag angle conj fft ifft fftn ifftn fftshift ifftshift
    window_sum window_sum_with window_prod window_prod_with window_max window_max_with window_min window_min_with
    window_and window_and_with window_or window_or_with max_pool max_pool_with avg_pool avg_pool_with
    all_gather all_to_all at bitcast categorical clamp cross diag diagonal diff frexp gradient
    halo halo_with irfft one_hot one_hot_to pad pad_with permutation pmax pmean pmin powi ppermute
    psum psum_scatter repeat rfft shift top_k trace tril triu unique
    layer_norm rms_norm
    sum matmul matrix_power slogdet lu qr eigh svd svdvals
}
