//! Statements, branches and loops.

use super::{Eval, Interp, Stop};
use crate::syntax::{Block, Item, Kind, Node, Pattern, Statement};
use crate::value::{Scope, Value};
use std::rc::Rc;

impl Interp {
    /// Notes the functions of a block, by name; `of` is the type whose methods they are.
    pub(super) fn define(&self, block: &Block, of: Option<&str>) {
        let mut functions = self.functions.borrow_mut();
        for statement in &block.statements {
            match statement {
                Statement::Item(Item::Function(f)) => {
                    let name = of.map_or_else(|| f.name.to_string(), |of| format!("{of}::{}", f.name));
                    functions.insert(name, f.clone());
                }
                Statement::Item(Item::Methods(ty, list)) => {
                    for f in list {
                        functions.insert(format!("{ty}::{}", f.name), f.clone());
                    }
                }
                _ => {}
            }
        }
    }
    /// Returns a function of the program.
    pub(super) fn function(&self, name: &str) -> Option<Rc<crate::syntax::Function>> {
        self.functions.borrow().get(name).cloned()
    }
    /// Evaluates statements, whose names are added to the scope.
    pub(super) fn statements(self: &Rc<Self>, block: &Rc<Block>, scope: &mut Scope) -> Eval {
        self.define(block, None);
        for statement in &block.statements {
            match statement {
                Statement::Let(pattern, ty, value, other) => {
                    self.let_statement(pattern, ty.as_deref(), value.as_ref(), other.as_ref(), scope)?;
                }
                Statement::Expression(Node { kind: Kind::Macro(name, args), .. }) if &**name == "axes" => {
                    let Some(Kind::Text(names)) = args.first().map(|a| &a.kind) else { continue };
                    for name in names.split(',').map(|n| n.trim().rsplit(' ').next().unwrap_or_default()) {
                        scope.bind(name.into(), Value::text(name));
                    }
                }
                Statement::Expression(node) => {
                    if self.is_skipped(node) {
                        continue;
                    }
                    self.statement(node, scope)?;
                }
                Statement::Item(Item::Constant(name, node)) => {
                    let value = self.value(node, scope)?;
                    scope.bind(name.clone(), value);
                }
                Statement::Item(_) => {}
            }
        }
        match &block.value {
            Some(node) if self.is_skipped(node) => Ok(Value::result(Ok(Value::Unit))),
            Some(node) => self.statement(node, scope),
            None => Ok(Value::Unit),
        }
    }
    /// Evaluates a statement; what it calls prints if the statement is shown.
    fn statement(self: &Rc<Self>, node: &Node, scope: &Scope) -> Eval {
        let before = self.inside.replace(self.inside.get() || self.shown.contains(&node.from));
        let value = self.value(node, scope);
        self.inside.set(before);
        value
    }
    /// Returns true for a statement outside of the part that is shown, if it only prints, checks or
    /// draws, or calls a function of the program that the part is not in.
    fn is_skipped(&self, node: &Node) -> bool {
        // only the statements of `main`, or of a program without it
        if self.calls.get() != usize::from(self.main.get()) {
            return false;
        }
        if self.shown.is_empty() || (node.from < self.shown.end && self.shown.start < node.to) {
            return false;
        }
        match &node.kind {
            Kind::Macro(..) => true,
            Kind::Try(of) => self.is_skipped(of),
            Kind::Call(callee, _) => match &callee.kind {
                Kind::Name(name, _) => match self.function(name) {
                    Some(f) => !self.leads_to_shown(&f.body, 0),
                    None => !matches!(&**name, "Ok" | "Err" | "Some"),
                },
                _ => false,
            },
            Kind::If(..) => !self.leads_to_shown(node, 0) && self.function("main").is_some(),
            _ => false,
        }
    }
    /// Returns true if an expression contains the part that is shown, or calls a function that does.
    fn leads_to_shown(&self, node: &Node, depth: usize) -> bool {
        if node.from < self.shown.end && self.shown.start < node.to {
            return true;
        }
        let text = &self.text[node.from..node.to.min(self.text.len())];
        let functions = self.functions.borrow();
        let called: Vec<_> =
            functions.iter().filter(|(name, _)| contains_word(text, name)).map(|(_, f)| f.clone()).collect();
        drop(functions);
        depth < 6
            && called.iter().any(|f| f.body.from != node.from && self.leads_to_shown(&f.body, depth + 1))
    }
    fn let_statement(
        self: &Rc<Self>,
        pattern: &Pattern,
        ty: Option<&str>,
        value: Option<&Node>,
        other: Option<&Rc<Block>>,
        scope: &mut Scope,
    ) -> Eval<()> {
        let wanted = match (pattern, ty.and_then(|t| t.rsplit_once(';'))) {
            (Pattern::List(list), _) => list.len(),
            (_, Some((_, n))) => n.trim_end_matches(']').parse().unwrap_or(2),
            _ => 2,
        };
        let Some(node) = value else {
            self.bind(pattern, &Value::Unit, scope)?;
            return Ok(());
        };
        let before = self.wanted.replace(wanted);
        let made = self.statement(node, scope);
        self.wanted.set(before);
        let made = super::operator::typed(made?, ty);
        if self.bind(pattern, &made, scope)? {
            self.note_pictures(node, pattern, &made);
            return Ok(());
        }
        if let Some(block) = other {
            self.block(block, scope)?;
        }
        Err(syntax_error!("{} does not fit the pattern of the `let`", made.what())
            .at(node.from, node.to)
            .into())
    }
    /// Keeps the placed arrays of a `let` that is shown, for pictures.
    fn note_pictures(&self, node: &Node, pattern: &Pattern, value: &Value) {
        let shown = self.shown.is_empty() || self.shown.contains(&node.from);
        if !shown || self.strict {
            return;
        }
        let pairs: Vec<(&Pattern, Value)> = match (pattern, value) {
            (Pattern::Tuple(names), Value::Tuple(list)) | (Pattern::List(names), Value::List(list)) => {
                names.iter().zip(list.iter().cloned()).collect()
            }
            _ => vec![(pattern, value.clone())],
        };
        for (pattern, value) in pairs {
            let (Pattern::Name(name), Value::Array(x)) = (pattern, value) else { continue };
            let drawn = x.ty().is_ok_and(|t| t.mesh.as_ref().is_some_and(|m| !m.is_abstract()));
            if drawn && x.shards().is_ok() {
                self.pictures.borrow_mut().push((name.to_string(), x));
            }
        }
    }
    /// Evaluates a condition, whose patterns add names to the scope.
    pub(super) fn condition(self: &Rc<Self>, node: &Node, scope: &mut Scope) -> Eval<bool> {
        match &node.kind {
            Kind::Let(pattern, value) => {
                let value = self.value(value, scope)?;
                self.bind(pattern, &value, scope)
            }
            Kind::Binary("&&", a, b) => Ok(self.condition(a, scope)? && self.condition(b, scope)?),
            _ => match self.value(node, scope)? {
                Value::Bool(b) => Ok(b),
                Value::Array(_) => Err(syntax_error!("a condition is a bool, not an array")
                    .help("branch on an array with `cond(pred, || .., || ..)` or `pred.select(a, b)`", None)
                    .at(node.from, node.to)
                    .into()),
                other => Err(syntax_error!("a condition is a bool, not {}", other.what())
                    .at(node.from, node.to)
                    .into()),
            },
        }
    }
    pub(super) fn branch(self: &Rc<Self>, node: &Node, scope: &Scope) -> Eval {
        match &node.kind {
            Kind::If(condition, then, other) => {
                let mut inner = scope.clone();
                match (self.condition(condition, &mut inner)?, other) {
                    (true, _) => self.block(then, &inner),
                    (false, Some(other)) => self.value(other, scope),
                    (false, None) => Ok(Value::Unit),
                }
            }
            Kind::Match(value, arms) => {
                let value = self.value(value, scope)?;
                for arm in arms {
                    let mut inner = scope.clone();
                    if !self.bind(&arm.pattern, &value, &mut inner)? {
                        continue;
                    }
                    let guard = arm.guard.as_ref().map(|g| self.condition(g, &mut inner)).transpose()?;
                    if guard != Some(false) {
                        return self.value(&arm.value, &inner);
                    }
                }
                Err(syntax_error!("no arm of the `match` fits {}", value.what()).into())
            }
            _ => Ok(Value::Unit),
        }
    }
    pub(super) fn repeat(self: &Rc<Self>, node: &Node, scope: &Scope) -> Eval {
        let (over, body) = match &node.kind {
            Kind::For(pattern, over, body) => {
                let list = crate::library::iterate(&self.value(over, scope)?)?;
                (Some((pattern, list.into_iter())), body)
            }
            Kind::While(_, body) | Kind::Loop(body) => (None, body),
            _ => return Ok(Value::Unit),
        };
        let mut over = over;
        loop {
            let mut inner = scope.clone();
            if let Kind::While(condition, _) = &node.kind
                && !self.condition(condition, &mut inner)?
            {
                return Ok(Value::Unit);
            }
            if let Some((pattern, list)) = &mut over {
                let Some(value) = list.next() else { return Ok(Value::Unit) };
                self.bind(pattern, &value, &mut inner)?;
            }
            match self.block(body, &inner) {
                Ok(_) | Err(Stop::Continue) => {}
                Err(Stop::Break) => return Ok(Value::Unit),
                Err(other) => return Err(other),
            }
            self.step(node)?;
        }
    }
    /// Counts a step of a loop whose body may be empty.
    fn step(&self, node: &Node) -> Eval<()> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > super::MAX_STEPS {
            return Err(syntax_error!("the loop does not end").at(node.from, node.to).into());
        }
        Ok(())
    }
}

fn contains_word(text: &str, word: &str) -> bool {
    let word = word.rsplit("::").next().unwrap_or(word);
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !part(before) && !part(after)
    })
}
