//! Tests Shardy's worked examples, one operation each.

use super::*;

#[test]
fn elementwise_rows() {
    row("1", &M, |r| {
        let (a, b) = (r.arg(&[16, 32], p![X]), r.free(&[16, 32]));
        let s = r.same(&[&a]);
        let u = r.same(&[&s, &b]);
        for v in [s, u, b] {
            r.want(&v, "X,-");
        }
    });
    row("2", &M, |r| {
        let (a, b) = (r.free(&[16, 32]), r.free(&[16, 32]));
        let s = r.same(&[&a]);
        let u = r.same(&[&s, &b]);
        let u = r.pin(&u, p![X, Y]);
        for v in [a, b, u] {
            r.want(&v, "X,Y");
        }
    });
    let sum = |name, a: Spec, b: Spec, expected: &str| {
        row(name, &M, |r| {
            let (a, b) = (r.arg(&[16, 16], a), r.arg(&[16, 16], b));
            let c = r.same(&[&a, &b]);
            r.want(&c, expected);
        });
    };
    sum("7", p![X, _], p![_, X], "X,-");
    sum("8", p![Y, _], p![_, (Y, X)], "-,(Y,X)");
    sum("45a", p![X, _], p![Y, _], "-,-");
    sum("45b", p![(X, Y), _], p![(Y, X), _], "-,-");
    sum("45e", p![X, _], p![(X, Y), _], "(X,Y),-");
    sum("45f", p![(X, Y), _], p![X, Y], "(X,Y),-");
    row("45d", &[(X, 2), (Y, 2), (Z, 2)], |r| {
        let (a, b) = (r.arg(&[16, 16], p![(X, Y), _]), r.arg(&[16, 16], p![(X, Z), _]));
        let c = r.same(&[&a, &b]);
        r.want(&c, "X,-");
    });
    let piece = |stride, size| vec![SubAxes::from_slice(&[SubAxis { stride, size }]), SubAxes::new()];
    row("45c", &[(X, 8)], |r| {
        let (a, b) = (r.arg_at(&[16, 16], piece(2, 4)), r.arg_at(&[16, 16], piece(1, 4)));
        let c = r.same(&[&a, &b]);
        r.want(&c, "-,-");
    });
    row("45g", &[(X, 8)], |r| {
        let (a, b) = (r.arg(&[16, 16], p![X]), r.arg_at(&[16, 16], piece(2, 4)));
        let c = r.same(&[&a, &b]);
        r.want(&c, "X,-");
    });
    row("44", &M, |r| {
        let a = r.arg(&[6], p![X]);
        let b = r.same(&[&a]);
        r.want(&b, "X");
    });
    row("12", &M, |r| {
        let (a, b) = (r.arg(&[16, 32], p![X]), r.arg(&[32], p![Y]));
        let c = r.op(toy("j->ij", &[('i', 16), ('j', 32)], Priority::Broadcast), &[&b]);
        let s = r.same(&[&a, &c]);
        r.want(&c, "X,Y");
        r.want(&s, "X,Y");
    });
    row("13", &M, |r| {
        let b = r.free(&[32]);
        let c = r.op(toy("j->ij", &[('i', 16), ('j', 32)], Priority::Broadcast), &[&b]);
        let d = r.same(&[&c]);
        let _ = r.pin(&d, p![X, Y]);
        r.want(&b, "Y");
    });
}

#[test]
fn constraint_rows() {
    row("30", &M, |r| {
        let a = r.arg(&[16, 32], p![X]);
        let s = r.same(&[&a]);
        let c = r.pin(&s, p![_, Y]);
        r.want(&s, "-,Y");
        r.want(&c, "-,Y");
    });
    row("two constraints that differ", &M, |r| {
        let a = r.arg(&[16, 32], p![X]);
        let s = r.same(&[&a]);
        let (c, d) = (r.pin(&s, p![_, Y]), r.pin(&s, p![Y, X]));
        r.want(&c, "-,Y");
        r.want(&d, "Y,X");
    });
}

#[test]
fn product_rows() {
    let dot = |name, a: &[usize], sa: Spec, b: &[usize], sb: Spec, expected: &str| {
        row(name, &M, |r| {
            let (x, y) = (r.arg(a, sa), r.arg(b, sb));
            let c = r.dot(&x, &y);
            r.want(&c, expected);
        });
    };
    row("3", &M, |r| {
        let (x, y) = (r.arg(&[16, 32], p![_, X]), r.free(&[32, 8]));
        let c = r.dot(&x, &y);
        r.want(&y, "X,-");
        r.want(&c, "-,-");
    });
    dot("4", &[64, 32], p![X], &[32, 8], p![_, X], "X,-");
    dot("5", &[8, 32], p![X], &[32, 64], p![_, X], "-,X");
    dot("6", &[32, 32], p![X], &[32, 32], p![_, X], "X,-");
    row("9", &M, |r| {
        let (x, w, v) = (r.arg(&[16, 16], p![X]), r.arg(&[16, 32], p![_, Y]), r.arg(&[32, 16], p![Y]));
        let h = r.dot(&x, &w);
        let q = r.same(&[&h]);
        let o = r.dot(&q, &v);
        r.want(&h, "X,Y");
        r.want(&q, "X,Y");
        r.want(&o, "X,-");
    });
    row("46a", &M, |r| {
        let (a, b) = (r.arg(&[16], p![X]), r.arg(&[16], p![Y]));
        let c = r.op(toy("i,j->ij", &[('i', 16), ('j', 16)], Priority::Plain), &[&a, &b]);
        r.want(&c, "X,Y");
    });
    row("46b", &M, |r| {
        let (a, b) = (r.arg(&[16], p![X]), r.arg(&[16], p![X]));
        let c = r.op(toy("i,j->ij", &[('i', 16), ('j', 16)], Priority::Plain), &[&a, &b]);
        r.want(&c, "X,-");
    });
    row("47", &M, |r| {
        let (q, k) = (r.arg(&[16, 8], p![X]), r.arg(&[16, 8], p![Y]));
        let s = r.op(toy("sd,td->st", &[('s', 16), ('t', 16), ('d', 8)], Priority::Plain), &[&q, &k]);
        let w = r.op(toy("st->s", &[('s', 16), ('t', 16)], Priority::Plain), &[&s]);
        r.want(&s, "X,Y");
        r.want(&w, "X");
    });
    row("52", &M, |r| {
        let (x, g) = (r.arg(&[64, 16], p![X]), r.arg(&[64, 8], p![X]));
        let w = r.op(toy("bi,bo->io", &[('b', 64), ('i', 16), ('o', 8)], Priority::Plain), &[&x, &g]);
        r.want(&w, "-,-");
    });
}

#[test]
fn shape_rows() {
    let shape =
        |name, axes: &[_], text: &str, sizes: &[(char, usize)], a: &[usize], spec: Spec, expected: &str| {
            row(name, axes, |r| {
                let a = r.arg(a, spec);
                let c = r.op(toy(text, sizes, Priority::Alias), &[&a]);
                r.want(&c, expected);
            });
        };
    shape("11", &M, "ij->ji", &[('i', 16), ('j', 32)], &[16, 32], p![X, Y], "Y,X");
    shape("14", &M, "(ij)->ij", &[('i', 2), ('j', 4)], &[8], p![X], "X:(1)2,X:(2)2");
    shape("15", &M, "ij->(ij)", &[('i', 2), ('j', 4)], &[2, 4], p![_, Y], "-");
    shape("16", &M, "ij->(ij)", &[('i', 2), ('j', 4)], &[2, 4], p![Y, _], "Y");
    let four = [(X, 4), (Y, 4)];
    shape("17", &four, "ijk->(ij)k", &[('i', 4), ('j', 4), ('k', 32)], &[4, 4, 32], p![X, Y], "(X,Y),-");
    shape("18", &M, "(ij)->ij", &[('i', 3), ('j', 4)], &[12], p![Y], "-,-");
    shape("19", &M, "(ij)k->i(jk)", &[('i', 2), ('j', 4), ('k', 4)], &[8, 4], p![X, Y], "X:(1)2,X:(2)2");
    shape("20", &M, "ik->ijk", &[('i', 8), ('j', 1), ('k', 4)], &[8, 4], p![X, Y], "X,-,Y");
    row("48", &M, |r| {
        let a = r.arg(&[4, 8, 32], p![X, _, Y]);
        let sizes = [('i', 4), ('j', 8), ('k', 4), ('l', 8)];
        let b = r.op(toy("ij(kl)->ijkl", &sizes, Priority::Alias), &[&a]);
        let c = r.op(toy("ijkl->ikjl", &sizes, Priority::Alias), &[&b]);
        r.want(&b, "X,-,Y,-");
        r.want(&c, "X,Y,-,-");
    });
}

#[test]
fn rows_of_reductions_slices_and_updates() {
    let one = |name, text: &str, sizes: &[(char, usize)], rank, a: &[usize], spec: Spec, expected: &str| {
        row(name, &M, |r| {
            let a = r.arg(a, spec);
            let c = r.op(toy(text, sizes, rank), &[&a]);
            r.want(&c, expected);
        });
    };
    let ij = [('i', 16), ('j', 32)];
    one("10", "ij->j", &ij, Priority::Plain, &[16, 32], p![X, Y], "Y");
    one("50", "ij->i", &ij, Priority::Plain, &[16, 32], p![X, Y], "X");
    one("32a", "ij->ij i!", &ij, Priority::Plain, &[16, 32], p![X, Y], "X,Y");
    one("32b", "i->i i!i?", &[('i', 16)], Priority::Plain, &[16], p![X], "-");
    one("33", "ij->ij i!", &ij, Priority::Plain, &[16, 32], p![X, Y], "X,Y");
    one("24", "ij->+ij", &[('i', 10), ('j', 16)], Priority::Plain, &[8, 16], p![X, Y], "X,Y");
    one("25", "ij->~ij", &[('i', 8), ('j', 16)], Priority::DynamicSlice, &[8, 16], p![X, Y], "-,Y");
    one("49", "+i->i", &[('i', 16)], Priority::Plain, &[16], p![X], "X");
    row("21", &M, |r| {
        let (a, b) = (r.arg(&[8, 8], p![X, Y]), r.free(&[16, 8]));
        let c = r.op(toy("ij,+ij->ij", &[('i', 24), ('j', 8)], Priority::Plain), &[&a, &b]);
        r.want(&c, "X,Y");
    });
    row("23", &[(X, 8)], |r| {
        let a = r.arg(&[8], p![X]);
        let s = r.op(toy("+i->i", &[('i', 7)], Priority::Plain), &[&a]);
        let t = r.op(toy("+i->i", &[('i', 7)], Priority::Plain), &[&a]);
        let d = r.same(&[&s, &t]);
        for v in [s, t, d] {
            r.want(&v, "X");
        }
    });
    row("26", &M, |r| {
        let (a, u) = (r.arg(&[8, 16], p![X, Y]), r.free(&[4, 16]));
        let s = r.op(toy("ij,~ij->ij", &[('i', 8), ('j', 16)], Priority::DynamicSlice), &[&a, &u]);
        r.want(&s, "X,Y");
        r.want(&u, "-,Y");
    });
    let take = |name, st: Spec, si: Spec, expected: &str| {
        row(name, &M, |r| {
            let (t, i) = (r.arg(&[64, 16], st), r.arg(&[16, 1], si));
            let text = "kj,il->ij l!";
            let c = r.op(toy(text, &[('k', 64), ('j', 16), ('i', 16), ('l', 1)], Priority::Plain), &[&t, &i]);
            r.want(&c, expected);
        });
    };
    take("27", p![X, Y], p![Y], "-,Y");
    take("28", p![_, Y], p![X], "X,Y");
    row("29", &M, |r| {
        let (t, i, u) = (r.arg(&[64, 16], p![X]), r.arg(&[16, 1], p![Y]), r.arg(&[16, 16], p![Y]));
        let sizes = [('k', 64), ('j', 16), ('i', 16), ('l', 1)];
        let c = r.op(toy("kj,il,ij->kj l!", &sizes, Priority::Plain), &[&t, &i, &u]);
        r.want(&c, "X,-");
    });
}
