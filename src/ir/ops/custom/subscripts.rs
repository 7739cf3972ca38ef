//! Parsing of the subscripts of custom operations, such as `"...ij,jk->...ik"`.
//!
//! Each letter is the label of a dimension, as in einsum. An ellipsis stands for any number of
//! unnamed dimensions that come first.

use crate::core::Fault;
use std::fmt;

/// The subscripts of one operand or result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OperandSubscripts {
    /// True if any number of unnamed dimensions comes first (`...`).
    pub(crate) ellipsis: bool,
    /// The labels of the other dimensions.
    pub(crate) labels: Vec<char>,
}

/// The subscripts of all operands and results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Subscripts {
    /// The subscripts of each operand.
    pub(crate) operands: Vec<OperandSubscripts>,
    /// The subscripts of each result.
    pub(crate) results: Vec<OperandSubscripts>,
}

impl fmt::Display for OperandSubscripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.ellipsis { "..." } else { "" })?;
        f.write_str(&self.labels.iter().collect::<String>())
    }
}

impl fmt::Display for Subscripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |all: &[OperandSubscripts]| {
            all.iter().map(OperandSubscripts::to_string).collect::<Vec<_>>().join(",")
        };
        write!(f, "{}->{}", list(&self.operands), list(&self.results))
    }
}

impl Subscripts {
    /// Parses subscripts such as `"ij,jk->ik"`.
    pub(crate) fn parse(text: &str) -> Result<Subscripts, Fault> {
        let wrong = |why: String, help: &str| Err(fault!(Syntax, "in {text:?} {why}").help(help));
        let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let Some((operands, results)) = plain.split_once("->") else {
            let help =
                "write the dimensions of the operands, `->`, and those of the results: `\"ij,jk->ik\"`";
            return wrong("there is no `->`".into(), help);
        };
        let mut sides = [Vec::new(), Vec::new()];
        for (side, list) in sides.iter_mut().zip([operands, results]) {
            for one in list.split(',') {
                let (dots, letters) = one.strip_prefix("...").map_or((false, one), |rest| (true, rest));
                let letters: Vec<char> = letters.chars().collect();
                if let Some(c) = letters.iter().find(|c| !c.is_ascii_alphabetic()) {
                    return wrong(
                        format!("{c:?} names no dimension"),
                        "dimensions are named by letters, after `...` for any number of further ones",
                    );
                }
                if let Some(k) = (1..letters.len()).find(|k| letters[..*k].contains(&letters[*k])) {
                    return wrong(
                        format!("{:?} names two dimensions of {one}", letters[k]),
                        "give each dimension of an array its own letter",
                    );
                }
                side.push(OperandSubscripts { ellipsis: dots, labels: letters });
            }
        }
        let [operands, results] = sides;
        let dots = |all: &[OperandSubscripts]| all.iter().filter(|n| n.ellipsis).count();
        let among = dots(&operands) > 0;
        if if among { dots(&results) < results.len() } else { dots(&results) > 0 } {
            let help = "write `...` in each result and in the operands whose first dimensions these are";
            return wrong("`...` is not in all results as it is in operands".into(), help);
        }
        Ok(Subscripts { operands, results })
    }
    /// Returns true if a result has this label.
    pub(crate) fn in_results(&self, label: char) -> bool {
        self.results.iter().any(|n| n.labels.contains(&label))
    }
    /// Returns true if an operand has this label.
    pub(crate) fn in_operands(&self, label: char) -> bool {
        self.operands.iter().any(|n| n.labels.contains(&label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_print_as_they_are_read() {
        for text in ["ij,jk->ik", "...i,->...,...i", ",->", "abC->Cab"] {
            assert_eq!(Subscripts::parse(text).map(|l| l.to_string()), Ok(text.to_string()));
        }
        assert_eq!(Subscripts::parse(" i j , j -> i ").map(|l| l.to_string()), Ok("ij,j->i".to_string()));
        for (text, why) in [
            ("ij,jk", "there is no `->`"),
            ("i1->i", "'1' names no dimension"),
            ("i...->i", "'.' names no dimension"),
            ("ii->i", "'i' names two dimensions of ii"),
            ("...i->i", "`...` is not in all results"),
            ("i->...i", "`...` is not in all results"),
        ] {
            let message = Subscripts::parse(text).expect_err(text).message;
            assert!(message.contains(why), "{message}");
        }
    }
}
