//! Checks the consistency of StableHLO text: each name is bound once, and is read after its
//! binding, within its region, and with the bound type; brackets are balanced. It knows only the
//! forms that this crate writes.

use std::collections::{HashMap, HashSet};

/// An operation with open regions: what it binds, what it reads, and the names bound around it.
struct Open {
    binds: Vec<String>,
    reads: Vec<String>,
    around: HashMap<String, String>,
    /// The carried types, for loops.
    types: Option<Vec<String>>,
}

#[derive(Default)]
struct Check {
    types: HashMap<String, String>,
    bound: HashSet<String>,
    open: Vec<Open>,
}

/// Returns an error with the line number if the text is inconsistent.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let mut check = Check::default();
    for (n, line) in text.lines().enumerate() {
        check.line(line.trim()).map_err(|why| format!("line {}: {why}: {}", n + 1, line.trim()))?;
    }
    if check.open.is_empty() { Ok(()) } else { Err("line at the end: a region is open".into()) }
}

/// Splits at commas outside brackets.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut word) = (Vec::new(), 0, String::new());
    let mut before = ' ';
    for c in text.chars() {
        match c {
            '<' | '[' | '(' | '{' => depth += 1,
            '>' if before == '-' => {}
            '>' | ']' | ')' | '}' => depth -= 1,
            _ => {}
        }
        before = c;
        if c == ',' && depth == 0 {
            parts.push(std::mem::take(&mut word).trim().to_string());
        } else {
            word.push(c);
        }
    }
    parts.push(word.trim().to_string());
    parts.retain(|p| !p.is_empty());
    parts
}
/// Returns the text within the bracket that `text` starts with, and the text after it.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    let mut before = ' ';
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '}' | '>' => {
                depth -= 1;
                if depth == 0 {
                    return Some((&text[1..i], &text[i + 1..]));
                }
            }
            _ => {}
        }
        before = c;
    }
    None
}
/// Returns the names that a text reads, in order.
fn names(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for piece in text.split('%').skip(1) {
        let end = piece.find(|c: char| !c.is_alphanumeric() && c != '#' && c != '_').unwrap_or(piece.len());
        found.push(format!("%{}", &piece[..end]));
    }
    found
}
/// Returns the types of operands and of results: `(a, b) -> c`, or `a` for all of them.
fn signature(text: &str) -> (Option<Vec<String>>, Vec<String>) {
    let plain =
        |t: &str| split(t.trim().strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(t.trim()));
    match text.trim_start().starts_with('(').then(|| bracket(text.trim_start())).flatten() {
        Some((ins, outs)) if outs.trim_start().starts_with("->") => {
            (Some(split(ins)), plain(outs.trim_start().trim_start_matches("->")))
        }
        _ => (None, plain(text)),
    }
}

impl Check {
    fn bind(&mut self, name: &str, ty: &str) -> Result<(), String> {
        if !self.bound.insert(name.to_string()) {
            return Err(format!("{name} is bound twice"));
        }
        self.types.insert(name.to_string(), ty.to_string());
        Ok(())
    }
    fn read(&self, name: &str, ty: &str) -> Result<(), String> {
        match self.types.get(name) {
            None => Err(format!("{name} is not bound here")),
            Some(t) if t == ty => Ok(()),
            Some(t) => Err(format!("{name} is {t}, and is read as {ty}")),
        }
    }
    /// Parses `%a: t {…}, %b: t`.
    fn parameters(&mut self, text: &str) -> Result<(), String> {
        for p in split(text) {
            let (name, ty) = p.split_once(": ").ok_or("a parameter without a type")?;
            self.bind(name, ty.split(" {").next().unwrap_or(ty))?;
        }
        Ok(())
    }
    fn enter(&mut self, binds: Vec<String>, reads: Vec<String>, types: Option<Vec<String>>) {
        self.open.push(Open { binds, reads, around: self.types.clone(), types });
    }
    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.starts_with("module") {
            self.enter(vec![], vec![], None);
            return Ok(());
        }
        if line.starts_with("sdy.mesh") || line == "cond {" {
            return Ok(());
        }
        if line.starts_with("func.func") {
            let (inside, _) = bracket(&line[line.find('(').ok_or("no arguments")?..]).ok_or("brackets")?;
            self.enter(vec![], vec![], None);
            return self.parameters(inside);
        }
        if let Some(heads) = line.strip_prefix("^bb0") {
            return self.parameters(bracket(heads).ok_or("brackets")?.0);
        }
        if line == "} do {" || line == "}, {" {
            // Names of the previous region are out of scope, except for those that a loop carries.
            let open = self.open.last().ok_or("no region is open")?;
            let carried: Vec<_> = open.reads.iter().filter(|n| n.starts_with('@')).cloned().collect();
            let mut types = open.around.clone();
            for c in carried {
                types.insert(c[1..].to_string(), self.types[&c[1..]].clone());
            }
            self.types = types;
            return Ok(());
        }
        if line.starts_with('}') {
            return self.close(line);
        }
        self.operation(line)
    }
    fn close(&mut self, line: &str) -> Result<(), String> {
        let open = self.open.pop().ok_or("no region is open")?;
        self.types = open.around;
        let results = match (line.split_once(" : "), open.types) {
            (Some((_, types)), _) => {
                let (ins, outs) = signature(types);
                let ins = ins.ok_or("no types of operands")?;
                self.all(&open.reads, &ins)?;
                outs
            }
            (None, Some(types)) => types,
            (None, None) => vec![],
        };
        self.results(&open.binds, &results)
    }
    fn all(&self, reads: &[String], types: &[String]) -> Result<(), String> {
        if reads.len() != types.len() {
            return Err(format!("{} operands, and {} types", reads.len(), types.len()));
        }
        reads.iter().zip(types).try_for_each(|(n, t)| self.read(n, t))
    }
    fn results(&mut self, binds: &[String], types: &[String]) -> Result<(), String> {
        if binds.len() != types.len() {
            return Err(format!("{} results, and {} types", binds.len(), types.len()));
        }
        binds.iter().zip(types).try_for_each(|(n, t)| self.bind(n, t))
    }
    fn operation(&mut self, line: &str) -> Result<(), String> {
        let (binds, op) = match line.split_once(" = ") {
            Some((name, op)) if name.starts_with('%') => match name.split_once(':') {
                None => (vec![name.to_string()], op),
                Some((name, n)) => {
                    let n: usize = n.parse().map_err(|_| "a number of results")?;
                    ((0..n).map(|k| format!("{name}#{k}")).collect(), op)
                }
            },
            _ => (vec![], line),
        };
        if let Some(rest) = op.strip_prefix("stablehlo.while") {
            let (pairs, types) = bracket(rest).ok_or("brackets")?;
            let (_, types) = signature(types.trim_start_matches(" : "));
            let around = self.types.clone();
            let mut carried = Vec::new();
            for (pair, ty) in split(pairs).iter().zip(&types) {
                let (name, from) = pair.split_once(" = ").ok_or("a carry without a beginning")?;
                self.read(from, ty)?;
                self.bind(name, ty)?;
                carried.push(format!("@{name}"));
            }
            self.open.push(Open { binds, reads: carried, around, types: Some(types) });
            return Ok(());
        }
        if op.starts_with("sdy.manual_computation") {
            let (reads, rest) = bracket(&op[op.find('(').ok_or("no operands")?..]).ok_or("brackets")?;
            self.enter(binds, names(reads), None);
            let at = rest.rfind("} (").ok_or("no parameters")?;
            return self.parameters(bracket(&rest[at + 2..]).ok_or("brackets")?.0);
        }
        if op.ends_with("({") {
            let reads = bracket(&op[op.find('(').ok_or("no operands")?..]).ok_or("brackets")?.0;
            self.enter(binds, names(reads), None);
            return Ok(());
        }
        let at = op.rfind(" : (").or_else(|| op.rfind(" : "));
        let Some(at) = at else { return if op.contains("return") { Ok(()) } else { Err("no types".into()) } };
        let (ins, outs) = signature(&op[at + 3..]);
        let reads = names(&op[..at]);
        let word = op.split_whitespace().next().unwrap_or_default();
        match ins {
            Some(ins) => self.all(&reads, &ins)?,
            None if word.ends_with("return") => return self.all(&reads, &outs),
            None if word == "stablehlo.select" => {
                let [which, ty] = &outs[..] else { return Err("a select has two types".into()) };
                self.all(&reads, &[which.clone(), ty.clone(), ty.clone()])?;
                return self.results(&binds, &outs[1..]);
            }
            // The real and imaginary parts have another type than the result.
            None if word == "stablehlo.complex" => {}
            None if word == "stablehlo.optimization_barrier" => self.all(&reads, &outs)?,
            None => reads.iter().try_for_each(|n| self.read(n, &outs[0]))?,
        }
        self.results(&binds, &outs)
    }
}
