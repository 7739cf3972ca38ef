//! Compares an answer with its task: elements, type, collectives and bytes.

use atmesh::prelude::*;
use atmesh::{CollectiveKind, Error, Lowered};

/// The error of a function whose gap is still open.
const GAP: &str = "the gap is still open";

/// Stands in the place of what the reader writes.
pub(crate) fn gap<T>() -> Result<T> {
    Err(Error::other(GAP))
}

/// The kind, count and bytes per device of each collective.
pub(crate) type Sent = Vec<(CollectiveKind, u64, u64)>;

/// What an answer gave.
pub(crate) enum Outcome {
    /// A program: its result, and its collectives if they are counted.
    Program(Array, Option<Sent>),
    /// A spec or a number, as text.
    Text(String),
}

/// The grade of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Grade {
    Solved,
    /// The gap is still open.
    Open,
    /// The answer is wrong: in which respect, and the hint if the mistake is a known one.
    Wrong {
        why: String,
        hint: Option<&'static str>,
    },
}

/// A sign of a common mistake.
pub(crate) enum Clue {
    /// The result has this type.
    Type(&'static str),
    /// The result has these elements.
    Elements(Array),
    /// The program has a collective of this kind.
    Has(CollectiveKind),
    /// The program has more collectives than it needs, or larger ones.
    More,
    /// The program has no collective.
    Silent,
    /// The text of the error has these words.
    Error(&'static str),
    /// The answer is this text.
    Text(&'static str),
}

/// An answer, and what its task asks for.
pub(crate) struct Check {
    outcome: Result<Outcome>,
    text: Option<String>,
    elements: Option<Array>,
    ty: Option<&'static str>,
    sent: Option<Sent>,
    hints: Vec<(Clue, &'static str)>,
}

impl Check {
    pub(crate) fn new(outcome: Result<Outcome>) -> Check {
        Check { outcome, text: None, elements: None, ty: None, sent: None, hints: Vec::new() }
    }

    /// The right answer is this text.
    pub(crate) fn text(self, text: impl ToString) -> Check {
        Check { text: Some(text.to_string()), ..self }
    }

    /// The right result has these elements.
    pub(crate) fn elements(self, right: Array) -> Check {
        Check { elements: Some(right), ..self }
    }

    /// The right result has this type.
    pub(crate) fn ty(self, ty: &'static str) -> Check {
        Check { ty: Some(ty), ..self }
    }

    /// The right program has exactly these collectives: kind, count, and bytes that a device receives
    /// each time.
    pub(crate) fn sent(self, sent: &[(CollectiveKind, u64, u64)]) -> Check {
        Check { sent: Some(sent.to_vec()), ..self }
    }

    /// Adds a hint for answers with this sign. The first hint that fits is given.
    pub(crate) fn hint(mut self, clue: Clue, hint: &'static str) -> Check {
        self.hints.push((clue, hint));
        self
    }

    pub(crate) fn grade(&self) -> Result<Grade> {
        if let Err(e) = &self.outcome
            && e.to_string().contains(GAP)
        {
            return Ok(Grade::Open);
        }
        let Some(why) = self.fault()? else { return Ok(Grade::Solved) };
        for (clue, hint) in &self.hints {
            if self.fits(clue)? {
                return Ok(Grade::Wrong { why, hint: Some(hint) });
            }
        }
        Ok(Grade::Wrong { why, hint: None })
    }

    /// Returns in which respect the answer is wrong.
    fn fault(&self) -> Result<Option<String>> {
        let (result, sent) = match &self.outcome {
            Err(e) => return Ok(Some(format!("it is an error:\n{e}"))),
            Ok(Outcome::Text(text)) => {
                return Ok((Some(text) != self.text.as_ref()).then(|| format!("the answer is not {text}")));
            }
            Ok(Outcome::Program(result, sent)) => (result, sent),
        };
        if let Some(ty) = self.ty.filter(|ty| type_of(result) != *ty) {
            return Ok(Some(format!("the type is {}; the task asks for {ty}", type_of(result))));
        }
        if let Some(right) = &self.elements
            && !right.is_close(result)?
        {
            let finite = !result.dtype()?.is_float() || result.is_finite().all(..).item::<bool>()?;
            let text =
                if finite { "the elements are not right" } else { "some elements are NaN or infinite" };
            return Ok(Some(text.into()));
        }
        match (sent, &self.sent) {
            (Some(sent), Some(right)) if sent != right => {
                let (sent, right) = (described(sent), described(right));
                Ok(Some(format!("each device receives {sent}; the task asks for {right}")))
            }
            _ => Ok(None),
        }
    }

    fn fits(&self, clue: &Clue) -> Result<bool> {
        Ok(match (clue, &self.outcome) {
            (Clue::Error(words), Err(e)) => e.to_string().contains(words),
            (Clue::Text(words), Ok(Outcome::Text(text))) => text == words,
            (Clue::Type(ty), Ok(Outcome::Program(result, _))) => type_of(result) == *ty,
            (Clue::Elements(wrong), Ok(Outcome::Program(result, _))) => wrong.is_close(result)?,
            (Clue::Has(kind), Ok(Outcome::Program(_, Some(sent)))) => sent.iter().any(|(k, ..)| k == kind),
            (Clue::Silent, Ok(Outcome::Program(_, Some(sent)))) => sent.is_empty(),
            (Clue::More, Ok(Outcome::Program(_, Some(sent)))) => {
                bytes(sent) > self.sent.as_ref().map_or(0, bytes)
            }
            _ => false,
        })
    }
}

/// Compares arrays that may be of different shapes or placements.
trait Close {
    fn is_close(&self, other: &Array) -> Result<bool>;
}

impl Close for Array {
    fn is_close(&self, other: &Array) -> Result<bool> {
        Ok(self.shape()? == other.shape()?
            && self.dtype()? == other.dtype()?
            && other.allclose_with(self, 1e-4, 1e-5)?)
    }
}

fn bytes(sent: &Sent) -> u64 {
    sent.iter().map(|(_, count, bytes)| count * bytes).sum()
}

fn described(sent: &Sent) -> String {
    let each = sent.iter().map(|(kind, count, bytes)| format!("{count} × {kind} of {bytes} bytes"));
    let each: Vec<String> = each.collect();
    if each.is_empty() { "nothing".into() } else { each.join(", ") }
}

/// Returns the result of a lowered program, and its collectives.
fn run<I: Tree>(
    program: Result<Lowered<I, Array>>,
    call: impl FnOnce(Lowered<I, Array>) -> Result<Array>,
) -> Result<Outcome> {
    let program = program?;
    let sent = program.collectives().iter().map(|c| (c.kind, c.count, c.bytes_per_device)).collect();
    Ok(Outcome::Program(call(program)?, Some(sent)))
}

pub(crate) fn one(f: impl Fn(&Array) -> Result<Array>, x: &Array) -> Result<Outcome> {
    run(jit(|x: &Array| f(x)).lower(x), |p| p.compile()?.call(x))
}

pub(crate) fn two(f: impl Fn(&Array, &Array) -> Result<Array>, x: &Array, y: &Array) -> Result<Outcome> {
    run(jit(|x: &Array, y: &Array| f(x, y)).lower((x, y)), |p| p.compile()?.call((x, y)))
}

pub(crate) fn three(
    f: impl Fn(&Array, &Array, &Array) -> Result<Array>,
    x: &Array,
    y: &Array,
    z: &Array,
) -> Result<Outcome> {
    let f = jit(|x: &Array, y: &Array, z: &Array| f(x, y, z));
    run(f.lower((x, y, z)), |p| p.compile()?.call((x, y, z)))
}

/// The outcome of a spec or a number.
pub(crate) fn text<T: ToString>(answer: Result<T>) -> Result<Outcome> {
    Ok(Outcome::Text(answer?.to_string()))
}
