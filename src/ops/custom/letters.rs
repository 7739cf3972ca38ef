//! How the dimensions of a user's operation are told: `"...ij,jk->...ik"`.

use crate::diagnostic::{ErrorKind, Fault};
use std::fmt;

/// The dimensions of one operand or result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Named {
    /// Whether any number of dimensions comes first.
    pub(crate) dots: bool,
    /// The names of the others.
    pub(crate) letters: Vec<char>,
}

/// The dimensions of all operands and results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Letters {
    /// Of each operand.
    pub(crate) operands: Vec<Named>,
    /// Of each result.
    pub(crate) results: Vec<Named>,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.dots { "..." } else { "" })?;
        f.write_str(&self.letters.iter().collect::<String>())
    }
}

impl fmt::Display for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |all: &[Named]| all.iter().map(Named::to_string).collect::<Vec<_>>().join(",");
        write!(f, "{}->{}", list(&self.operands), list(&self.results))
    }
}

impl Letters {
    /// Reads `"ij,jk->ik"`.
    pub(crate) fn parse(text: &str) -> Result<Letters, Fault> {
        let wrong = |why: String, help: &str| {
            Err(Fault::new(ErrorKind::Syntax, format!("in {text:?} {why}")).help(help))
        };
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
                        "dimensions are named by letters, behind `...` for any number of further ones",
                    );
                }
                if let Some(k) = (1..letters.len()).find(|k| letters[..*k].contains(&letters[*k])) {
                    return wrong(
                        format!("{:?} names two dimensions of {one}", letters[k]),
                        "give each dimension of an array a letter of its own",
                    );
                }
                side.push(Named { dots, letters });
            }
        }
        let [operands, results] = sides;
        let dots = |all: &[Named]| all.iter().filter(|n| n.dots).count();
        let among = dots(&operands) > 0;
        if if among { dots(&results) < results.len() } else { dots(&results) > 0 } {
            let help = "write `...` in each result and in the operands whose first dimensions these are";
            return wrong("`...` is not in all results as it is in operands".into(), help);
        }
        Ok(Letters { operands, results })
    }
    /// Whether a result has this letter.
    pub(crate) fn made(&self, letter: char) -> bool {
        self.results.iter().any(|n| n.letters.contains(&letter))
    }
    /// Whether an operand has this letter.
    pub(crate) fn given(&self, letter: char) -> bool {
        self.operands.iter().any(|n| n.letters.contains(&letter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_print_as_they_are_read() {
        for text in ["ij,jk->ik", "...i,->...,...i", ",->", "abC->Cab"] {
            assert_eq!(Letters::parse(text).map(|l| l.to_string()), Ok(text.to_string()));
        }
        assert_eq!(Letters::parse(" i j , j -> i ").map(|l| l.to_string()), Ok("ij,j->i".to_string()));
        for (text, why) in [
            ("ij,jk", "there is no `->`"),
            ("i1->i", "'1' names no dimension"),
            ("i...->i", "'.' names no dimension"),
            ("ii->i", "'i' names two dimensions of ii"),
            ("...i->i", "`...` is not in all results"),
            ("i->...i", "`...` is not in all results"),
        ] {
            let told = Letters::parse(text).expect_err(text).message;
            assert!(told.contains(why), "{told}");
        }
    }
}
