//! Linear algebra operations.

use super::check::numbers;
use super::ops::Val;
use atmesh::{Array, TriangularOptions};
use serde_json::Value;

/// Returns the results, or `None` if the operation is not in this family.
pub(crate) fn linalg(op: &str, ins: &[Val], p: &Value) -> Option<Vec<Array>> {
    let x = ins.first()?.array();
    let is = |name: &str| p[name].as_bool() == Some(true);
    // These flags are true by default.
    let is_not = |name: &str| p[name].as_bool() == Some(false);
    let second = || ins.get(1).map(Val::array);
    Some(match op {
        "cholesky" if is("upper") => vec![x.cholesky_upper()],
        "cholesky" => vec![x.cholesky()],
        "triangular_solve" => {
            let mut how = TriangularOptions::default();
            how.left_side = is("left_side");
            how.lower = is("lower");
            how.transpose_a = is("transpose_a");
            how.unit_diagonal = is("unit_diagonal");
            vec![x.triangular_solve(second()?, how)]
        }
        "solve" => vec![x.solve(second()?)],
        "inv" => vec![x.inv()],
        "det" => vec![x.det()],
        "slogdet" => {
            let (sign, log) = x.slogdet();
            vec![sign, log]
        }
        "lu" => {
            let (lu, pivots, permutation) = x.lu();
            vec![lu, pivots, permutation]
        }
        "qr" => {
            let (q, r) = x.qr(!is_not("full_matrices"));
            vec![q, r]
        }
        "eigh" => {
            let (w, v) = x.eigh();
            vec![w, v]
        }
        "eigvalsh" => vec![x.eigvalsh()],
        "svd" if is_not("compute_uv") => vec![x.svdvals()],
        "svd" => {
            let (u, s, vt) = x.svd(!is_not("full_matrices"));
            vec![u, s, vt]
        }
        "matrix_power" => vec![x.matrix_power(numbers::int(&p["n"]) as i64)],
        "pinv" => vec![x.pinv(None)],
        _ => return None,
    })
}
