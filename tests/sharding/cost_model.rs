//! The cost of communication relative to compute depends on the machine: each machine gets the
//! program that is faster on it.

use atmesh::ImplicitReshard;
use atmesh::engine::compilations;
use atmesh::plan::{Link, Machine};
use atmesh::prelude::*;

/// Returns threads of one processor, with the default cost ratio: 32 elements per byte.
fn threads() -> Machine {
    Machine::new("threads").flops(F32, 64e9).elementwise(16e9).links(Link::switch(1e9))
}
fn gpus() -> Machine {
    Machine::h100().links(Link::NVLINK_4)
}

/// Multiplies with a sharded contracted dimension. There are two methods: each device computes some
/// rows, which are gathered (67 MB); or operands are gathered (15 MB), and each device computes all
/// rows.
fn product(x: &Array, w: &Array) -> Array {
    x.dot_to(w, p![])
}

#[test]
fn each_machine_gets_the_way_that_is_quicker_on_it() -> Result<()> {
    for mesh in [Mesh::auto([("X", 8)])?, Mesh::new([("X", 8)])?] {
        let types = || {
            (
                F32.array_type([4096, 512]).on(&mesh, p![_, "X"]),
                F32.array_type([512, 4096]).on(&mesh, p!["X", _]),
            )
        };
        let on = |m: &Machine| jit(product).cost_model(m, F32).lower(types());
        let (by_rows, gathered) = (on(&threads())?, on(&gpus())?);
        assert!(by_rows.collectives().bytes() > 4 * gathered.collectives().bytes());
        assert_eq!(gathered.collectives().bytes(), 2 * 4096 * 512 * 4 * 7 / 8, "both operands, once");
        for (machine, own, other) in [(threads(), &by_rows, &gathered), (gpus(), &gathered, &by_rows)] {
            let seconds = [own, other].map(|l| l.plan(&machine).map(|p| p.seconds()));
            let [own, other] = seconds;
            assert!(2.0 * own? < other?, "on {}", machine.name());
        }
        // Without a machine, the plan is the one for the first machine.
        let plain = jit(product).lower(types())?;
        assert_eq!(plain.to_string(), by_rows.to_string());
        // Limits apply to the program for this machine, and suggestions are evaluated on it, too.
        let most = gathered.collectives().bytes();
        let limited =
            |m: &Machine| jit(product).implicit_reshard(ImplicitReshard::Deny(most)).cost_model(m, F32);
        assert!(limited(&gpus()).lower(types()).is_ok() && limited(&threads()).lower(types()).is_err());
        let why = jit(product).cost_model(&gpus(), F32).explain(types(), 0)?;
        assert_eq!(why.collective.kind, atmesh::CollectiveKind::AllGather, "{why}");
    }
    Ok(())
}

/// The machine also applies inside loops, branches and functions.
#[test]
fn programs_inside_are_priced_alike() -> Result<()> {
    let mesh = Mesh::new([("X", 8), ("Y", 1)])?;
    let types = || {
        let (x, w) = (
            F32.array_type([4096, 256]).on(&mesh, p![_, "X"]),
            F32.array_type([256, 512]).on(&mesh, p!["X", _]),
        );
        (x, w, F32.array_type([4096, 512]).on(&mesh, p![]))
    };
    type Three = fn(&Array, &Array, &Array) -> Array;
    let looped: Three = |x, w, y| {
        fori_loop(0..3, (x.clone(), y.clone()), |_, (x, _): (Array, Array)| {
            let y = product(&x, w);
            (x + 1.0, y)
        })
        .1
    };
    let open: Three = |x, w, y| {
        while_loop(
            (x.clone(), y.clone()),
            |(x, _)| x.max(..).lt(9.0),
            |(x, _)| {
                let y = product(&x, w);
                (x + 1.0, y)
            },
        )
        .1
    };
    let branched: Three = |x, w, y| cond(x.max(..).gt(0.0), || product(x, w), || y * 2.0);
    let called: Three = |x, w, y| {
        jit(|x: &Array, w: &Array| product(x, w)).call((x, w)).unwrap_or_else(|e| panic!("{e}")) + y
    };
    for (what, f) in [("for", looped), ("while", open), ("cond", branched), ("jit", called)] {
        let gathers = |m: &Machine| -> Result<bool> {
            let lowered = jit(f).cost_model(m, F32).lower(types())?;
            Ok(!lowered.collectives().iter().any(|c| c.kind == atmesh::CollectiveKind::AllToAll))
        };
        assert_eq!((gathers(&threads())?, gathers(&gpus())?), (false, true), "{what}");
    }
    Ok(())
}

/// A program that was compiled for one machine does not run for another, whether the two functions
/// are the same or trace equal programs.
#[test]
fn two_machines_have_two_programs() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    // These sizes occur in no other test, so nothing has compiled them before.
    let (x, w) = (Key::new(1).normal([1536, 264]), Key::new(2).normal([264, 1536]));
    let whole = x.dot(&w);
    let (x, w) = (x.put(&mesh, p![_, "X"]), w.put(&mesh, p!["X", _]));
    let text = |m: &Machine| -> Result<(String, Array, usize)> {
        let before = compilations();
        let y = jit(product).cost_model(m, F32).call((&x, &w))?;
        let text = jit(product).cost_model(m, F32).lower((&x, &w))?.to_string();
        Ok((text, y, compilations() - before))
    };
    let (by_rows, gathered) = (text(&threads())?, text(&gpus())?);
    assert_ne!(by_rows.0, gathered.0);
    assert!(by_rows.2 > 0 && gathered.2 > 0, "each is compiled");
    let again = [text(&threads())?, text(&gpus())?];
    assert_eq!(again.each_ref().map(|t| t.2), [0, 0], "once");
    for (y, of) in [(&by_rows.1, &again[0].1), (&gathered.1, &again[1].1)] {
        assert_eq!(y.to_vec::<f32>()?, of.to_vec::<f32>()?, "the same bits, whichever ran before");
        assert!(y.allclose_with(&whole, 1e-4, 1e-4)?);
        assert_eq!(type_of(y), type_of(&by_rows.1), "the type is no matter of the machine");
    }
    // A machine with equal rates counts as the same machine, whatever its name.
    let other = Machine::new("other").flops(F32, 128e9).elementwise(1e9).links(Link::switch(2e9));
    assert_eq!(text(&other)?.2, 0);
    // An option that is set after a call takes effect from then on.
    let f = jit(product).cost_model(&threads(), F32);
    assert_eq!(f.call((&x, &w))?.to_vec::<f32>()?, by_rows.1.to_vec::<f32>()?);
    let f = f.cost_model(&gpus(), F32);
    assert_eq!(f.call((&x, &w))?.to_vec::<f32>()?, gathered.1.to_vec::<f32>()?);
    assert_eq!(f.lower((&x, &w))?.to_string(), gathered.0);
    Ok(())
}

/// On a ring, an exchange of a byte costs more than a gather of one.
#[test]
fn plans_and_programs_have_the_same_prices() -> Result<()> {
    let mesh = Mesh::auto([("X", 64)])?;
    let types = || {
        (
            F32.array_type([64 * 8, 64]).on(&mesh, p!["X", _]),
            F32.array_type([64 * 8, 64]).on(&mesh, p![_, "X"]),
        )
    };
    let sum = |x: &Array, y: &Array| x + y;
    for (machine, other) in [(ring(), switch()), (switch(), ring())] {
        let on = |m: &Machine| jit(sum).cost_model(m, F32).lower(types());
        let [own, others] = [on(&machine)?.plan(&machine)?, on(&other)?.plan(&machine)?].map(|p| p.seconds());
        assert!(own <= others, "on {}: {own:e}, and {others:e}", machine.name());
    }
    Ok(())
}
fn ring() -> Machine {
    Machine::new("ring").flops(F32, 1e15).links(Link::ring(1e9))
}
fn switch() -> Machine {
    Machine::new("switch").flops(F32, 1e15).links(Link::switch(1e9))
}

#[test]
fn a_machine_without_the_figures_is_rejected() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 1)])?;
    let x = Array::ones([4, 4]).put(&mesh, p!["X"]);
    let f = |m: Machine, dtype| jit(|x: &Array| x * 2.0).cost_model(&m, dtype);
    let new = || Machine::new("ours");
    for (machine, dtype, what, help) in [
        (new().flops(F32, 1e12), F32, "has no link along mesh axis \"X\"", ".link(\"X\""),
        (new().links(Link::switch(1e9)), F32, "has no matmul rate for float32", ".flops(DType::F32"),
        (Machine::tpu_v5p(), F64, "has no matmul rate for float64", ".flops(DType::F64"),
        (new().flops(F32, f64::NAN).links(Link::switch(1e9)), F32, "is NaN", "1 or more"),
        (new().flops(F32, 1e9).links(Link::switch(0.0)), F32, "is 0", "1 or more"),
    ] {
        let f = f(machine, dtype);
        for error in [f.call(&x).err(), f.lower(&x).err(), f.trace(&x).err(), f.explain(&x, 0).err()] {
            let text = error.unwrap_or_else(|| panic!("{what}: accepted")).to_string();
            assert!(
                text.contains(what) && text.contains(help) && text.contains("tests/sharding/cost_model.rs:"),
                "{text}"
            );
        }
    }
    // A link along an axis of one device is unused, and so are all links without a mesh.
    let one = new().flops(F32, 1e12).link("X", Link::switch(1e9));
    assert_eq!(f(one.clone(), F32).call(&x)?.to_vec::<f32>()?, [2.0; 16]);
    assert_eq!(f(new(), F32).call(Array::ones([4]))?.to_vec::<f32>()?, [2.0; 4]);
    // A link without a limit makes communication free, whatever the other rates.
    let free = one.link("X", Link::switch(f64::INFINITY));
    assert_eq!(free.macs_per_byte(F32, &mesh)?, 0.0);
    assert_eq!(f(free, F32).call(&x)?.to_vec::<f32>()?, [2.0; 16]);
    Ok(())
}
