//! Moves that a program does not ask for: allowed, told, or refused.

use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::partition::{Collective, Collectives, Kind};

/// What is done about values that are moved although the program does not say so: gathered, exchanged or sent since an operation reads them otherwise
/// than they are sharded. Not meant are sums of partial values and halos, which belong to what an operation computes, and what the program asks
/// for by `reshard`, `constrain` or collectives in code of one device.
///
/// The limit is in bytes that a device receives in one call, for each row of the [report](crate::Collectives).
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::ImplicitReshard;
/// let mesh = Mesh::without_devices([("X", 8)])?;
/// let (x, w) = (|| F32.of([64, 16]).on(&mesh, p!["X", _]), || F32.of([16, 32]).on(&mesh, p!["X", _]));
/// // the product needs all of w on each device
/// let implicit = jit(|x: &Array, w: &Array| x.dot(w)).implicit_reshard(ImplicitReshard::Deny(1024));
/// assert!(implicit.lower((x(), w())).is_err());
/// // now the program says so
/// let said = jit(|x: &Array, w: &Array| x.dot(w.reshard(p![]))).implicit_reshard(ImplicitReshard::Deny(1024));
/// assert!(said.lower((x(), w())).is_ok());
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImplicitReshard {
    /// Nothing.
    #[default]
    Allow,
    /// One of more bytes than this is told on stderr when the program is lowered, with its line.
    Warn(u64),
    /// A program with one of more bytes than this is refused, at the lines of all of them.
    Deny(u64),
}

/// Whether a row is such a move.
fn implicit(c: &Collective) -> bool {
    matches!(c.kind, Kind::AllGather | Kind::AllToAll | Kind::Permute | Kind::Exchange) && !c.asked
}

impl ImplicitReshard {
    /// Refuses a program that moves too much unasked, or tells of it.
    pub(super) fn check(self, all: &Collectives) -> Result<()> {
        let most = match self {
            ImplicitReshard::Allow => return Ok(()),
            ImplicitReshard::Warn(most) | ImplicitReshard::Deny(most) => most,
        };
        let bytes = |c: &Collective| c.bytes.saturating_mul(c.times);
        let rows: Vec<&Collective> = all.iter().filter(|c| implicit(c) && bytes(c) > most).collect();
        let told = |c: &&Collective| {
            let times = if c.times == 1 { String::new() } else { format!(", {} times", c.times) };
            format!(
                "{} over {} of {} bytes per device{times}, which the program does not ask for: {}",
                c.kind, c.axes, c.bytes, c.reason
            )
        };
        if let ImplicitReshard::Warn(_) = self {
            for c in &rows {
                let line = c.source.map_or(String::new(), |p| format!("{}:{}: ", p.file(), p.line()));
                eprintln!("warning: {line}{}: {}", c.op, told(c));
            }
            return Ok(());
        }
        let refused = |c: &&Collective| {
            let fault = Fault::new(ErrorKind::Sharding, told(c))
                .help("say that it is meant: `.reshard(p![…])`, over auto axes `.constrain(p![…])`, on what is read")
                .help("what would avoid it: `jit(f).explain(args, i)`")
                .help(format!("or allow it: `.implicit_reshard(ImplicitReshard::Deny({}))`", bytes(c)));
            Error::at(fault, &c.op, Vec::new(), c.source)
        };
        match rows.is_empty() {
            true => Ok(()),
            false => Err(Error::all(rows.iter().map(refused).collect::<Vec<_>>())),
        }
    }
}
