//! The faer implementations: matrix products.

use crate::bench::{Case, case, data, mean, size};
use faer::Mat;

pub fn line(line: &str) -> Option<Case> {
    let n = size(line);
    let columns = match line.split('/').next()? {
        "matmul" => n,
        "matvec" => 1,
        _ => return None,
    };
    faer::set_global_parallelism(faer::Par::rayon(0));
    let matrix = |seed, n: usize, m: usize| {
        let x = data(seed, n * m, 1.0);
        Mat::<f32>::from_fn(n, m, |i, j| x[i * m + j])
    };
    let (x, y) = (matrix(1, n, n), matrix(2, n, columns));
    let check = |z: &Mat<f32>| (0..columns).map(|j| mean(z.col_as_slice(j))).sum::<f64>() / columns as f64;
    case(check, move || &x * &y)
}
