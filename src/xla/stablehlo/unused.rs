//! Removes operations whose results nothing uses.

use std::collections::HashSet;

/// Returns the lines of a function without the operations on one line whose results are unused.
///
/// All values are defined before they are used, and have different names, so one pass from the end
/// suffices.
pub(super) fn without_unused(text: &str) -> String {
    let (mut used, mut kept): (HashSet<&str>, Vec<&str>) = (HashSet::new(), Vec::new());
    for line in text.lines().rev() {
        let defined = defined_alone(line);
        if defined.is_some_and(|name| !used.contains(name)) {
            continue;
        }
        let operands = line.trim_start().split_once(" = ").filter(|_| defined.is_some());
        used.extend(names(operands.map_or(line, |(_, rest)| rest)));
        kept.push(line);
    }
    kept.iter().rev().flat_map(|line| [line, "\n"]).collect()
}

/// Returns the name of the only result of an operation on one line that has no effect.
fn defined_alone(line: &str) -> Option<&str> {
    let (name, rest) = line.trim_start().split_once(" = stablehlo.")?;
    let is_whole = rest.contains(" : ") && !rest.ends_with('{') && !rest.starts_with("optimization_barrier");
    (is_whole && !name.contains(':')).then_some(name)
}

/// Returns the names of values in a line, such as `%3` of `%3#1`.
fn names(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices('%').map(|(at, _)| {
        let rest = &line[at + 1..];
        let len = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        &line[at..at + 1 + len]
    })
}

#[cfg(test)]
mod tests {
    use super::without_unused;

    #[test]
    fn only_values_that_nothing_uses_go() {
        let text = "\
    %0 = stablehlo.constant dense<1.0> : tensor<f32>
    %1 = stablehlo.add %arg0, %0 : tensor<f32> loc(\"a.rs\":1:2)
    %2 = stablehlo.optimization_barrier %1 : tensor<f32>
    %3:2 = \"stablehlo.sort\"(%1, %1) <{dimension = 0 : i64, is_stable = true}> ({
      ^bb0(%4: tensor<f32>, %5: tensor<f32>):
      %6 = stablehlo.multiply %4, %5 : tensor<f32>
      %7 = stablehlo.compare LT, %4, %5 : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %7 : tensor<i1>
    }) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    %8 = stablehlo.negate %3#1 : tensor<f32>
    %10 = stablehlo.negate %8 : tensor<f32>
    return %8 : tensor<f32>
";
        let without: String = text
            .lines()
            .filter(|line| !line.contains("%6 =") && !line.contains("%10 ="))
            .flat_map(|line| [line, "\n"])
            .collect();
        assert_eq!(without_unused(text), without);
        // an operation goes with the last one that uses it
        let chain =
            "    %0 = stablehlo.iota dim = 0 : tensor<2xf32>\n    %1 = stablehlo.negate %0 : tensor<2xf32>\n";
        assert_eq!(without_unused(chain), "");
    }
}
