//! Names do not affect plans: a program whose axes, fields and checkpoint names are renamed has the
//! same plan, byte for byte, after the names are replaced back. The other names sort differently,
//! so that a tie broken by names would show; they have equal lengths, so that tables keep their
//! widths.

use super::{Program, V, programs};
use crate::soak::{part, runs_all};
use atmesh::plan::{Link, Machine};
use atmesh::prelude::*;
use atmesh::{Args, Axes, CheckpointPolicy, Param, Tree, checkpoint_with};

/// Pairs of a name and its replacement.
type Names = [(&'static str, &'static str)];

const AXES: [[&str; 2]; 2] = [["axis_k", "axis_m"], ["axis_z", "axis_b"]];

/// Replaces the second names of a text by the first ones.
fn put_back(text: &str, names: &Names) -> String {
    names.iter().fold(text.to_owned(), |text, (name, other)| text.replace(other, name))
}

/// Returns the first line that differs.
fn differs(a: &str, b: &str) -> Option<String> {
    let line = a.lines().zip(b.lines()).find(|(a, b)| a != b).map(|(a, b)| format!("{a}\n{b}"));
    line.or_else(|| (a != b).then(|| "one is longer".to_owned()))
}

/// Returns all printed forms of a program: as written, placed and lowered; and its collectives,
/// memory and plan.
fn report_text<I: Tree, O>(lowered: &atmesh::Lowered<I, O>) -> Result<String> {
    let machine = Machine::new("any").flops(F32, 1e12).memory(1e12, 1e11).links(Link::ring(1e9));
    let (program, spmd) = (lowered.program(), lowered.spmd());
    let (moved, held, plan) = (lowered.collectives(), lowered.memory(), lowered.plan(&machine)?);
    Ok(format!("{program}\n{lowered}\n{spmd}\n{moved}\n{held}\n{plan}\n{}", plan.to_json()))
}

fn bits(results: &V) -> Result<Vec<Vec<u32>>> {
    results.iter().map(|y| Ok(y.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect())).collect()
}

impl Program {
    /// Returns the program on axes with these names.
    fn on(&self, names: [&'static str; 2]) -> Program {
        let of = |axis: Axis| {
            let at = self.mesh.iter().position(|(name, _)| *name == axis.name());
            Axis::new(names[at.expect("specs name the mesh's axes")])
        };
        let spec =
            |s: &Spec| Spec::from_dims(s.dims().iter().map(|d| d.iter().map(of).collect::<Axes>()).collect());
        let mesh: Vec<_> = names.into_iter().zip(self.mesh).map(|(name, axis)| (name, axis.1)).collect();
        Program {
            mesh: mesh.leak(),
            args: self.args.iter().map(|(shape, s)| (shape.clone(), spec(s))).collect(),
            results: self.results.iter().map(spec).collect(),
            ..*self
        }
    }
    /// Returns the printed forms on axes with these names, and the bits of the results.
    fn seen(&self, names: [&'static str; 2]) -> Result<(String, Vec<Vec<u32>>)> {
        let p = self.on(names);
        let mesh = Mesh::auto(p.mesh.iter().copied())?;
        let each = p.args.iter().enumerate();
        let operands: V =
            each.map(|(k, (shape, s))| Key::new(k as u64).uniform(shape.clone()).put(&mesh, *s)).collect();
        let f = jit(|a: &V| p.constrained(&mesh, a));
        let lowered = f.lower(&operands)?;
        Ok((report_text(&lowered)?, bits(&lowered.compile()?.call(&operands)?)?))
    }
}

#[test]
fn other_names_of_axes_change_no_byte() -> Result<()> {
    let names: Vec<_> = AXES[0].into_iter().zip(AXES[1]).collect();
    let mut wrong = Vec::new();
    // every sixth program, others than those of `order_decides_nothing`
    for p in part(programs().into_iter().skip(usize::from(!runs_all())), 6) {
        let ((text, y), (other, z)) = (p.seen(AXES[0])?, p.seen(AXES[1])?);
        assert!(text.contains(AXES[0][0]) && other.contains(AXES[1][0]), "{}: axes are printed", p.name);
        if let Some(line) = differs(&text, &put_back(&other, &names)) {
            wrong.push(format!("{}: {line}", p.name));
        }
        assert_eq!(y, z, "{}: other bits", p.name);
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// A layer and its optimizer state, with any field names.
trait State: Tree + Clone {
    /// The names of the fields, and the checkpoint name of the scores.
    const NAMES: [&'static str; 4];
    fn from_fields(fields: [Array; 3]) -> Self;
    fn fields(&self) -> [&Array; 3];
}

macro_rules! state {
    ($state:ident { $($field:ident),* } $kept:literal) => {
        #[derive(Tree, Clone)]
        struct $state {
            $($field: Array),*
        }
        impl State for $state {
            const NAMES: [&'static str; 4] = [$(stringify!($field),)* $kept];
            fn from_fields([$($field),*]: [Array; 3]) -> Self {
                $state { $($field),* }
            }
            fn fields(&self) -> [&Array; 3] {
                [$(&self.$field),*]
            }
        }
    };
}
state! { First { field_k, field_l, field_m } "scores_k" }
state! { Other { field_z, field_b, field_a } "scores_a" }

/// Runs a training step with weights that are explicit over one axis: returns its printed forms,
/// and the bits of the new state.
fn step<S>(axes: [&'static str; 2]) -> Result<(String, Vec<Vec<u32>>)>
where
    S: State + Args<Owned = S> + for<'a> Param<Owned = S, Item<'a> = S>,
{
    let [rows, columns] = axes.map(Axis::new);
    let mesh = Mesh::new([(rows, 4), (columns, 2)])?.with_auto([columns])?;
    let spec = |axes: [Axis; 2]| Spec::from_dims(axes.map(Axes::from).to_vec());
    let random = |seed: u64, shape: [usize; 2]| Key::new(seed).normal(shape) * 0.1;
    let state = S::from_fields([1, 2, 3].map(|k| random(k, [16, 32]).put(&mesh, spec([rows, columns]))));
    let x = random(4, [64, 16]).put(&mesh, spec([rows, columns]));
    let train = |state: S, x: &Array| {
        let [w, mean, square] = state.fields();
        let g = grad(w, |w: Array| {
            let layer = |(x, w): (Array, Array)| {
                let w = w.reshard(Spec::replicated(2));
                x.dot(&w).checkpoint_name(S::NAMES[3]).tanh().sin()
            };
            checkpoint_with((x.clone(), w), CheckpointPolicy::named([S::NAMES[3]]), layer).square().mean(..)
        });
        let mean = 0.9 * mean + 0.1 * &g;
        let square = 0.99 * square + 0.01 * g.square();
        S::from_fields([w - 0.1 * &mean / (square.sqrt() + 1e-8), mean, square])
    };
    let f = jit(train).donate(0);
    let lowered = f.lower((state.clone(), x.clone()))?;
    let text = report_text(&lowered)?;
    for name in axes.into_iter().chain(S::NAMES[..3].iter().copied()) {
        assert!(text.contains(name), "{name} is not printed:\n{text}");
    }
    let new = f.call((state, x))?;
    Ok((text, bits(&new.fields().map(Array::clone).to_vec())?))
}

#[test]
fn other_names_of_fields_and_of_what_is_kept_change_no_byte() -> Result<()> {
    let first: Vec<_> = AXES[0].into_iter().zip(AXES[1]).collect();
    let names = [&first[..], &First::NAMES.into_iter().zip(Other::NAMES).collect::<Vec<_>>()].concat();
    let ((text, y), (other, z)) = (step::<First>(AXES[0])?, step::<Other>(AXES[1])?);
    assert_eq!(differs(&text, &put_back(&other, &names)), None);
    assert_eq!(y, z);
    Ok(())
}
